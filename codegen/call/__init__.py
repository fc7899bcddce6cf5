"""The call of a compiled program: its instructions, memory, launcher and fallbacks."""
