"""A plain interpreter of schedules: what they mean, without the code generator."""
