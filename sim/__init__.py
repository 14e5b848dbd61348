"""The simulator: time, disk and randomness under a test's control."""
