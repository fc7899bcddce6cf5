"""PyTorch's front door against torch's eager mode."""
