"""The tile algebra: symbolic tiles, their constraints, and how tiles move along index maps."""
