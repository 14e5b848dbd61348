"""The headers of requests and responses, between the frame's size and the body. No sockets here.

    request:   api key (2), api version (2), correlation id (4), client id (2 + n), tags (since header v2)
    response:  correlation id (4), tags (since header v1)

Called by the server with a whole frame, without its size. The first four fields are at the same position in every
header version, so they can be read even if the API or version is unknown, and an ApiVersions request of an unknown
version can be answered (KIP-511: its response has header v0 in every version, since the client does not know yet which
versions the broker supports).
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache

from headrace.wire.errors import Malformed
from headrace.wire.messages import header_version, knows

_FIXED_PART = struct.Struct(">hhih")
_FIXED_BYTES = _FIXED_PART.size
_CORRELATION_ID = struct.Struct(">i")
_TAG_FIELDS_AT_MOST = 64


# API key, version, correlation id, and the position of the body. One is made for every request, so it is a plain tuple,
# without the client id.
RequestHeader = tuple[int, int, int, int]


def parse_request_header(frame: memoryview) -> RequestHeader:
    """The header. For an unknown API or version, the position of the body is a guess."""
    if len(frame) < _FIXED_BYTES:
        raise Malformed(f"a request of {len(frame)} bytes is too short for its header")
    api_key, version, correlation_id, size = _FIXED_PART.unpack_from(frame)
    at = _FIXED_BYTES
    if size > len(frame) - at:
        raise Malformed(f"a client id has {size} bytes, but {len(frame) - at} are left")
    if size > 0:
        at += size
    if _has_tags(api_key, version):
        at = at + 1 if at < len(frame) and frame[at] == 0 else _skip_tags(frame, at)
    return api_key, version, correlation_id, at


def client_id(frame: memoryview) -> str:
    """The client id, "" if it is null. The frame's header must have been parsed before."""
    size = _FIXED_PART.unpack_from(frame)[3]
    return str(frame[_FIXED_BYTES : _FIXED_BYTES + size], "utf-8", "replace") if size > 0 else ""


def response_prefix(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of a response, without the frame's size."""
    return _CORRELATION_ID.pack(correlation_id) + _response_tags(api_key, version)


@cache
def _response_tags(api_key: int, version: int) -> bytes:
    return b"\x00" if header_version(api_key, version, "response") >= 1 else b""


@lru_cache(maxsize=1024)  # limited, since any client may send any API key and version
def _has_tags(api_key: int, version: int) -> bool:
    return knows(api_key, version) and header_version(api_key, version, "request") >= 2


def _skip_tags(frame: memoryview, at: int) -> int:
    count, at = _uvarint(frame, at)
    if count > _TAG_FIELDS_AT_MOST:
        raise Malformed(f"a request header with {count} tagged fields")
    for _ in range(count):
        _, at = _uvarint(frame, at)
        size, at = _uvarint(frame, at)
        at += size
        if at > len(frame):
            raise Malformed("a request header's tagged field is longer than the frame")
    return at


def _uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(frame):
            raise Malformed("a request header is truncated")
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Malformed("a varint is longer than five bytes")
