"""What runs a compiled program: steps, threads, the launcher's own source, the pool of memory, guards."""
