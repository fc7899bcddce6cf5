"""Kernels that stream through memory."""
