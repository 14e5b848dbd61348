"""A response as the whole frame that is sent: its size, its header and its body."""

from __future__ import annotations

import struct

from headrace.server.answering import Buffer
from headrace.wire import frames
from headrace.wire.messages import Message, encode_response
from headrace.wire.writing import UNLIMITED

_SIZE = struct.Struct(">i")


def reply_frame(header: frames.RequestHeader, message: Message, most_items: int = UNLIMITED) -> list[Buffer]:
    """The response to the request with this header. Raises TooManyItems."""
    api_key, version, correlation_id, _ = header
    chunks = encode_response(api_key, version, message, most_items)
    head = frames.response_prefix(api_key, version, correlation_id)
    size = len(head) + sum(len(chunk) for chunk in chunks)
    return [_SIZE.pack(size) + head, *chunks]
