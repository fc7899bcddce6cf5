"""Contractions: the roles of their dimensions, packed operands, and which micro-kernel computes them."""
