"""The history checker's self-test: no trust in its verdicts without it."""
