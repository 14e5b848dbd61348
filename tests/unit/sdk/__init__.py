"""The SDK: its rules, with no broker."""
