"""JAX's front door and JAX's platform."""
