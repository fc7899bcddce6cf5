"""Random programs and random situations that are meant to break things: `python -m tests.hostile --seconds 60 --seed 0`."""
