"""A real broker process, killed in the middle of work."""
