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

__all__ = ["ErrorCode", "InvalidRecords", "KafkaError", "Malformed"]


class KafkaError(Exception):
    """A request, or one part of it, is refused: with Kafka's code for clients and a sentence for people."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class InvalidRecords(KafkaError):
    """Some records of a batch make it unacceptable: which, counted from 0, so that a client can tell (KIP-467)."""

    def __init__(self, places: list[int], why: str, code: ErrorCode = ErrorCode.invalid_record) -> None:
        super().__init__(code, f"{len(places)} of the batch's records: {why}")
        self.places = places
        self.why = why


class Malformed(Exception):
    """Bytes that do not follow the protocol."""
