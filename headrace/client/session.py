"""The protocol of one connection, sans-IO: requests become frames, frames become responses. No socket here.

A connection (blocking.py, connection.py) owns one Session: it sends the bytes that `ask` returns and passes in the
frames that arrive. It begins with ApiVersions (`ask_versions`, `versions_from`); from then on each request uses the
highest version that both sides support.

Invariant: responses arrive in the order of the requests, as Kafka guarantees; a response whose correlation id is not
that of the oldest request in flight raises Malformed, since no later byte can be trusted.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from headrace import __version__
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError, Malformed
from headrace.wire.messages import Buffer, Message, decode_response, header_version, knows, request_chunks
from headrace.wire.reading import read_uvarint

SIZE_BYTES = 4  # in front of every frame
MAX_RESPONSE_BYTES = 1 << 30

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ihhih")
_CORRELATION_ID = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")
_API_VERSIONS = int(ApiKey.API_VERSIONS)  # looked at for each response
_API_VERSIONS_HIGHEST = 4
_CORRELATION_IDS = 1 << 31


class _Open(NamedTuple):
    """A request in flight."""

    correlation_id: int
    api_key: int
    version: int


class Session:
    def __init__(self, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._open: deque[_Open] = deque()
        self._next_id = 0
        self._versions: dict[int, tuple[int, int]] | None = None

    @property
    def open_requests(self) -> int:
        """How many requests are in flight."""
        return len(self._open)

    # --- versions -----------------------------------------------------------------------------------------------------

    def ask_versions(self) -> list[Buffer]:
        """The ApiVersions request, which comes first."""
        body = Message(client_software_name="headrace", client_software_version=__version__)
        return self.ask(_API_VERSIONS, body, _API_VERSIONS_HIGHEST)

    def versions_from(self, response: Message) -> None:
        """Store the versions in the broker's ApiVersions response."""
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if response.error_code not in (ErrorCode.none, ErrorCode.unsupported_version) or not ranges:
            raise KafkaError(ErrorCode(response.error_code), "the broker rejected the ApiVersions request")
        self._versions = ranges

    def version_of(self, api_key: int) -> int:
        """The highest version of this API that both sides support."""
        if self._versions is None:
            raise RuntimeError("the broker's API versions are not known yet: open the connection first")
        lowest, highest = self._versions.get(api_key, (0, -1))
        for version in range(highest, lowest - 1, -1):
            if knows(api_key, version):
                return version
        raise KafkaError(
            ErrorCode.unsupported_version, f"the broker serves no version of API {api_key} that headrace supports"
        )

    # --- requests and responses ---------------------------------------------------------------------------------------

    def ask(self, api_key: int, message: Message, version: int | None = None) -> list[Buffer]:
        """The request as a frame, size included, in buffers to be sent one after the other, so that records are not
        copied. Its response comes after those of all requests in flight."""
        if version is None:
            version = self.version_of(api_key)
        body = request_chunks(api_key, version, message)
        tags = b"\x00" if header_version(api_key, version, "request") >= 2 else b""
        size = _HEAD.size - SIZE_BYTES + len(self._client_id) + len(tags) + sum(map(len, body))
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) % _CORRELATION_IDS
        head = _HEAD.pack(size, api_key, version, correlation_id, len(self._client_id))
        self._open.append(_Open(correlation_id, api_key, version))
        first = b"".join((head, self._client_id, tags, body[0]))
        return [first, *body[1:]]

    def receive(self, frame: memoryview) -> Message:
        """The response in this frame, given without its size prefix. `records` in it are views of the frame."""
        if not self._open:
            raise Malformed("a response without a request in flight")
        if len(frame) < _CORRELATION_ID.size:
            raise Malformed(f"a response of {len(frame)} bytes")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        asked = self._open.popleft()
        if correlation_id != asked.correlation_id:
            raise Malformed(f"a response to request {correlation_id}, expected {asked.correlation_id}")
        at = _CORRELATION_ID.size
        if asked.api_key == _API_VERSIONS and _refuses(frame, at):
            return decode_response(_API_VERSIONS, 0, frame, at)
        if header_version(asked.api_key, asked.version, "response") >= 1:
            at = _skip_tags(frame, at)
        return decode_response(asked.api_key, asked.version, frame, at)


def frame_size(prefix: bytes | bytearray | memoryview) -> int:
    """The size of the frame that begins with these four bytes, not counting them."""
    size: int = _SIZE.unpack(prefix)[0]
    if not _CORRELATION_ID.size <= size <= MAX_RESPONSE_BYTES:
        raise Malformed(f"a response of {size} bytes")
    return size


def _refuses(frame: memoryview, at: int) -> bool:
    """Whether the broker does not support this version of ApiVersions: it then answers in version 0 (KIP-511)."""
    return len(frame) >= at + 2 and _ERROR_CODE.unpack_from(frame, at)[0] == ErrorCode.unsupported_version


def _skip_tags(frame: memoryview, at: int) -> int:
    try:
        count, at = read_uvarint(frame, at)
        for _ in range(count):
            _, at = read_uvarint(frame, at)
            size, at = read_uvarint(frame, at)
            at += size
    except IndexError as error:
        raise Malformed("a response header is cut short") from error
    return at
