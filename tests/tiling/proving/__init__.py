"""Proofs of schedules, and schedules that are wrong on purpose."""
