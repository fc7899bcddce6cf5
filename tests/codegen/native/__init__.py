"""From kernels to machine code, and its cache."""
