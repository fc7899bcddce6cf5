"""The functions that kernels call."""
