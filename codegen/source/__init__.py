"""From loops to numba source."""
