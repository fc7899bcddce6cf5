"""Schedules to kernels: the code generator, its kernel library, caches and run time."""
