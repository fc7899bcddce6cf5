"""The tile algebra."""
