"""Ops whose loops are written by hand: sorts, scatters, transforms, factorisations, random bits."""
