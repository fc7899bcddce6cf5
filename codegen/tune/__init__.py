"""What was measured on this machine: calibration, tile sizes, remembered plans."""
