"""Tests of tiles, the planner, loops and their proofs."""
