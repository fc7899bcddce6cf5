"""Quasi-affine expressions: terms, their ranges and extrema, and the rules that simplify them."""
