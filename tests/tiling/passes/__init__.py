"""Rewrites of loops: the list of passes, and what each of them makes."""
