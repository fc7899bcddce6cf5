"""What one run leaves for the next."""
