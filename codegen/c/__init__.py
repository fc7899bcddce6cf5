"""Kernels as C: printed from their typed statements, built by the system's compiler, called as machine code is."""
