"""Rewrites of loops: from a schedule to a schedule."""
