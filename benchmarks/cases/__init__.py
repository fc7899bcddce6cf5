"""What is measured: programs with their arguments, by suite."""
