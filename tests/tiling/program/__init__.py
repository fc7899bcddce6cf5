"""The program in normal form."""
