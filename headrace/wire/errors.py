"""Kafka's error codes, the exception that carries one, and the exception for bytes that cannot be parsed.

A room raises `KafkaError`; the handler that called it turns it into the error code of its response. A parser raises
`Malformed` for bytes that do not follow the protocol, and no other exception.
"""

from __future__ import annotations

import sys

# kio defines Hypothesis strategies for its types if Hypothesis can be imported. A broker does not need them, and they
# took a third of its start-up time, so Hypothesis is hidden from kio unless it is already loaded.
_hidden = sys.modules.setdefault("hypothesis", None) is None  # type: ignore[arg-type]
try:
    from kio.schema.errors import ErrorCode
finally:
    if _hidden:
        del sys.modules["hypothesis"]

__all__ = ["BadRecord", "ErrorCode", "InvalidRecords", "KafkaError", "Malformed", "TooManyItems", "TooMuch"]


MANY_PLACES = 1000  # of wrong records in one batch; no more are looked for


class KafkaError(Exception):
    """A request, or one part of it, is rejected: Kafka's error code for clients, and a message for people."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class InvalidRecords(KafkaError):
    """A batch is rejected because of some of its records; `places` are their indexes, counted from 0 (KIP-467), of the
    first hundred: a batch may have a million, of which whoever checks it finds the first thousand."""

    def __init__(self, places: list[int], why: str, code: ErrorCode = ErrorCode.invalid_record) -> None:
        count = f"{'at least ' if len(places) >= MANY_PLACES else ''}{len(places)}"
        super().__init__(code, f"{count} of the batch's records, the first at {places[0]}: {why}")
        self.places = places[:100]
        self.why = why


class Malformed(Exception):
    """Bytes that do not follow the protocol."""


class TooManyItems(Malformed):
    """A message has more items than its reader or writer was told to handle; nothing was made of those beyond."""


class TooMuch(Malformed):
    """A batch that opens into more bytes than it may."""


class BadRecord(Malformed):
    """A record of a batch that cannot be read: its index, counted from 0, and what is wrong with it."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(f"record {place}: {why}")
        self.place = place
        self.why = why
