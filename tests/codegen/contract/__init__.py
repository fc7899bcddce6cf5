"""Contractions and convolutions, and the table of their micro-kernels."""
