"""Ops whose loops are written by hand: transforms, scatters, sorts."""
