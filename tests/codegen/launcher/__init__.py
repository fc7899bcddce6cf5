"""What runs the steps of a call: threads, memory, guards."""
