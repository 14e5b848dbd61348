"""The simulator: time, disk and chance that a test holds in its hand."""
