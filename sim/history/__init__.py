"""The history checker: what clients saw, held against the invariants of docs/checker.md."""
