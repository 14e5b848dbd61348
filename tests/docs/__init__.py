"""The docs, run."""
