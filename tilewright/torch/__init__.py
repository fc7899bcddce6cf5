"""PyTorch's front door: the backend of `torch.compile`, `from_torch`, ATen's ops in JAX's terms, tensors as arrays."""
