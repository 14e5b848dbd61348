"""The history checker: checks what clients saw against the invariants of docs/checker.md."""
