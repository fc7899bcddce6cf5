"""Plans and schedules as text and HTML."""
