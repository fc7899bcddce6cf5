"""Contractions and transposes in registers, by blocks."""
