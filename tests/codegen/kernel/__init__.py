"""Kernels as data, and their print as C."""
