"""Other ways to run a compiled program than its plain call: by XLA, between guarded pages."""
