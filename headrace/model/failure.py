"""An error that a person caused or must act on: one line that says what happened, to what, and what to do next."""

from __future__ import annotations


class Failure(Exception):
    """The command line prints the message as it is and ends with status 1."""


def other_version(path: object, found: object, known: int) -> Failure:
    """A file whose format this program does not know; a later version has written it."""
    return Failure(f"{path} has format {found}, this headrace knows format {known}; run the version that wrote it")


def one_line(text: str) -> str:
    """The text without line breaks: an error is one line, even if a broker's message has several."""
    return " ".join(text.split())
