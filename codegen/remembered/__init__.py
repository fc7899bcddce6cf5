"""What one run leaves for the next: plans, and the machine as it was measured."""
