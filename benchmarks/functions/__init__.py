"""Scalar functions: how exact and how fast they are, for which types, and the fit of their coefficients."""
