"""A real broker inside a test process, with a clock that the test can push forward."""
