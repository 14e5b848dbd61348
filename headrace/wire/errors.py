"""Kafka's error codes, and the one exception that carries one.

A room raises `KafkaError`; the handler that called it turns it into the error code of its response. Anything that
cannot be parsed raises `Malformed`, and only that.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError", "Malformed"]


class KafkaError(Exception):
    """A request, or one part of it, is refused: with Kafka's code for clients and a sentence for people."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class Malformed(Exception):
    """Bytes that do not follow the protocol."""
