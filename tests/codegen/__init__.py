"""Tests of the code generator: kernels, their compilation, their calls."""
