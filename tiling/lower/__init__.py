"""From a tiled fusion to loops."""
