"""Kafka's error codes, and the one exception that carries one.

A room raises `KafkaError`; the handler that called it turns it into the error code of its response. Anything that
cannot be parsed raises `Malformed`, and only that.
"""

from __future__ import annotations

import sys

# kio makes Hypothesis strategies for its types wherever Hypothesis can be imported. A broker has no use for them, and
# where it is installed they were a third of its start, so kio does not get to see Hypothesis unless it is loaded.
_hidden = sys.modules.setdefault("hypothesis", None) is None  # type: ignore[arg-type]
try:
    from kio.schema.errors import ErrorCode
finally:
    if _hidden:
        del sys.modules["hypothesis"]

__all__ = ["ErrorCode", "KafkaError", "Malformed"]


class KafkaError(Exception):
    """A request, or one part of it, is refused: with Kafka's code for clients and a sentence for people."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class Malformed(Exception):
    """Bytes that do not follow the protocol."""
