"""An error that a person made or must act on: one line that says what happened, to what, and what to do next."""

from __future__ import annotations


class Failure(Exception):
    """The command line prints the message as it is and ends with status 1."""


def one_line(text: str) -> str:
    """The text without line breaks: an error is one line, whatever a broker put into its message."""
    return " ".join(text.split())
