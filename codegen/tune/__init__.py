"""What is measured on this machine: its rates, and which tiles are fastest."""
