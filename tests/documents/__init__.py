"""The documentation, the notebooks and the table of ops say what is so."""
