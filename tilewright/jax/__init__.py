"""JAX's front door: `jit` and `from_jax`, the lowering of functions, calls through JAX's own call, LAPACK."""
