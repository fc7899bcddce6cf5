"""HLO text, as XLA dumps it: read and written."""
