"""Parts that a program has written for one process itself."""
