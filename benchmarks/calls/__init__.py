"""What a warm call costs beside what it computes."""
