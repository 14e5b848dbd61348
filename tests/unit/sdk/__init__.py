"""The SDK: its rules in pure tests, its promises against a real broker."""
