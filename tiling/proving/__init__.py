"""Proofs of schedules by isl."""
