"""What a process reads beside its own tiles, and how it is brought: windows, pieces, values that are read elsewhere."""
