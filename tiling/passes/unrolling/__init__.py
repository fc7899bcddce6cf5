"""Loops that are written out: short sums, iterations that take turns, iterations that each compute something else."""
