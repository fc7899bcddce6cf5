"""Warm calls: through JAX's own call, with what stays the same left out, and the results as JAX's arrays."""
