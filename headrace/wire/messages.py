"""Converts requests and responses between bytes and one shape that is the same for all versions.

kio has a dataclass for each API, version and message. Handlers should not depend on the version, so for each API and
version a reader and a writer for a plain `Message` are compiled from kio's field lists (schemas.py):

- A decoded request has every field of its version. Reading a field that only another version has returns that field's
  default, so a handler never checks the version to read a field.
- A response is a `Message(**fields)` with the fields that the handler knows; the writer takes those that the requested
  version has and ignores the others. A field that is not given gets the schema's default; without one, null if the
  field is nullable, else zero, "" or []. An array that is not given is always [], even if it is nullable.

Conventions: times and durations are integers in milliseconds (kio's `max_wait` is `max_wait_ms` here), a null time is
-1, error codes are integers, an all-zero uuid is None, arrays are lists. `records` are not copied: in a request they
are a memoryview of the request's buffer (valid only until the handler's first stage returns), in a response any buffer
or list of buffers.

Every length is checked against the remaining bytes before it is used, and bad bytes raise only Malformed. Who passes
`most_items` gets TooManyItems if the arrays of a message have more items than that, all together: it costs no more than
those would. Callers only pass versions for which `knows` is true.
"""

from __future__ import annotations

import struct
from functools import cache

from headrace.wire.errors import Malformed, TooManyItems
from headrace.wire.reading import Reader, allow, compile_reader
from headrace.wire.schemas import Message, api_name, defaults, header_version, knows, versions_of
from headrace.wire.writing import UNLIMITED, Buffer, Out, Writer, compile_writer

__all__ = [
    "Buffer",
    "Message",
    "check_fields",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "header_version",
    "knows",
    "request_chunks",
]


@cache
def _reader(api_key: int, version: int, direction: str) -> Reader:
    return compile_reader(api_key, version, direction)


@cache
def _counting_reader(api_key: int, version: int) -> Reader:
    return compile_reader(api_key, version, "request", counting=True)


@cache
def _writer(api_key: int, version: int, direction: str) -> Writer:
    return compile_writer(api_key, version, direction)


def _decode(read: Reader, api_key: int, version: int, direction: str, buffer: memoryview, at: int) -> Message:
    try:
        message: Message = read(buffer, at)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"{api_name(api_key)} v{version}: the {direction} is truncated or malformed") from error
    return message


def decode_request(api_key: int, version: int, buffer: memoryview, at: int = 0, most_items: int = UNLIMITED) -> Message:
    """The body of a request that starts at `at`."""
    if len(buffer) - at <= most_items:  # an item has at least a byte, so there cannot be more
        return _decode(_reader(api_key, version, "request"), api_key, version, "request", buffer, at)
    allow(most_items)
    try:
        return _decode(_counting_reader(api_key, version), api_key, version, "request", buffer, at)
    except TooManyItems:
        raise TooManyItems(f"{api_name(api_key)} v{version}: a request with more than {most_items:,} items") from None


def decode_response(api_key: int, version: int, buffer: memoryview, at: int = 0) -> Message:
    """The body of a response that starts at `at`."""
    return _decode(_reader(api_key, version, "response"), api_key, version, "response", buffer, at)


def encode_request(api_key: int, version: int, message: Message) -> bytes:
    """The body of a request."""
    return b"".join(request_chunks(api_key, version, message))


def request_chunks(api_key: int, version: int, message: Message) -> list[Buffer]:
    """The body of a request as one or more buffers to be sent in this order."""
    return _chunks(api_key, version, "request", message, UNLIMITED)


def encode_response(api_key: int, version: int, message: Message, most_items: int = UNLIMITED) -> list[Buffer]:
    """The body of a response as buffers to be sent in this order."""
    return _chunks(api_key, version, "response", message, most_items)


def _chunks(api_key: int, version: int, direction: str, message: Message, most_items: int) -> list[Buffer]:
    out = Out(most_items)
    _writer(api_key, version, direction)(out, message)
    return out.chunks()


@cache
def _all_fields(api_key: int, direction: str) -> set[str]:
    known = [defaults(api_key, version, direction).values() for version in versions_of(api_key)]
    return {field for entities in known for entity in entities for field in entity}


def check_fields(api_key: int, direction: str, message: Message) -> None:
    """Raises AttributeError if a message has a field that no version has; used by tests to find misspelled fields."""
    anywhere = _all_fields(api_key, direction)

    def visit(part: Message) -> None:
        for name, value in vars(part).items():
            if name not in anywhere:
                raise AttributeError(f"no version of {api_name(api_key)}'s {direction} has a field {name!r}")
            for item in value if isinstance(value, list | tuple) else [value]:
                if isinstance(item, Message):
                    visit(item)

    visit(message)
