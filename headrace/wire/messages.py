"""Requests and responses between bytes and one version-free shape: the doors.

kio carries every Kafka schema as one dataclass per API and version. Handlers do not want to know the version, so a
reader and a writer for a plain `Message` are compiled from kio's field lists (schemas.py) once per API and version:

- A decoded request has every field of its version; reading a field that another version has gives that field's
  default, so a handler asks for what it needs and never for the version.
- A response is a `Message(**fields)` with whatever the handler knows; the writer takes the fields of the wanted
  version and leaves the others out. A field that is left away gets the schema's default; without one, null where that
  is allowed, else zero, "" or []. Only an array is [] then, even one that could be null.

Conventions of the shape: times and durations are integers in milliseconds (kio's `max_wait` is `max_wait_ms` here), a
time that is null is -1, error codes are integers, an all-zero uuid is None, arrays are lists. `records` stay what they
are: a memoryview of the request's buffer on the way in (valid only until the handler's first stage returns), any buffer
or list of buffers on the way out, which is sent without being copied.

Every length is checked against the bytes that are really there before anything is built from it, and bad bytes raise
Malformed, nothing else. Callers ask for versions that `knows` knows.
"""

from __future__ import annotations

import struct
from functools import cache

from headrace.wire.errors import Malformed
from headrace.wire.reading import Reader, compile_reader
from headrace.wire.schemas import Message, api_name, defaults, header_version, knows, versions_of
from headrace.wire.writing import Buffer, Out, Writer, compile_writer

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
def _writer(api_key: int, version: int, direction: str) -> Writer:
    return compile_writer(api_key, version, direction)


def _decode(api_key: int, version: int, direction: str, buffer: memoryview, at: int) -> Message:
    read = _reader(api_key, version, direction)
    try:
        message: Message = read(buffer, at)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"{api_name(api_key)} v{version}: the {direction} ends early or is garbled") from error
    return message


def decode_request(api_key: int, version: int, buffer: memoryview, at: int = 0) -> Message:
    """The body of a request that starts at `at`."""
    return _decode(api_key, version, "request", buffer, at)


def decode_response(api_key: int, version: int, buffer: memoryview, at: int = 0) -> Message:
    """The body of a response that starts at `at`."""
    return _decode(api_key, version, "response", buffer, at)


def encode_request(api_key: int, version: int, message: Message) -> bytes:
    """The body of a request."""
    return b"".join(request_chunks(api_key, version, message))


def request_chunks(api_key: int, version: int, message: Message) -> list[Buffer]:
    """The body of a request as buffers to be sent one after the other, one at least."""
    return _chunks(api_key, version, "request", message)


def encode_response(api_key: int, version: int, message: Message) -> list[Buffer]:
    """The body of a response as buffers to be sent one after the other."""
    return _chunks(api_key, version, "response", message)


def _chunks(api_key: int, version: int, direction: str, message: Message) -> list[Buffer]:
    out = Out()
    _writer(api_key, version, direction)(out, message)
    return out.chunks()


@cache
def _all_fields(api_key: int, direction: str) -> set[str]:
    known = [defaults(api_key, version, direction).values() for version in versions_of(api_key)]
    return {field for entities in known for entity in entities for field in entity}


def check_fields(api_key: int, direction: str, message: Message) -> None:
    """Raises AttributeError when a message has a field that no version knows; used by tests to catch typing errors."""
    anywhere = _all_fields(api_key, direction)

    def visit(part: Message) -> None:
        for name, value in vars(part).items():
            if name not in anywhere:
                raise AttributeError(f"no version of {api_name(api_key)}'s {direction} has a field {name!r}")
            for item in value if isinstance(value, list | tuple) else [value]:
                if isinstance(item, Message):
                    visit(item)

    visit(message)
