"""The explorer's data against the Python maps, and its page in a browser."""
