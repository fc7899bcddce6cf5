"""Domains of iterations: which there are, under which conditions, what is reached in them, and how they are cut."""
