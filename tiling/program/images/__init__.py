"""Rewrites of programs of convolutions: the order of dimensions between them, and fewer products in them."""
