"""Plans as files, and loops in other words."""
