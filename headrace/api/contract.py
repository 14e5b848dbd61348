"""What a handler is.

Stage one is a plain call: `handler(request)` does everything that must happen in the order of the connection's
requests (an append, a join) before it returns. It returns either the response, or an awaitable of it when the answer
must wait (stage two); meanwhile the connection goes on with the next request, and replies still leave in order.
None means that no reply is sent (Produce with acks=0).

Views into the request's buffer (`records`) are valid in stage one only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from headrace.wire.messages import Message


class Peer(Struct, frozen=True):
    """Who is on the other end of a connection, and at which address of ours it arrived."""

    host: str
    port: int
    local_host: str
    local_port: int


class Request(Struct, frozen=True):
    api_key: int
    version: int
    client_id: str
    body: Message
    peer: Peer


class Disconnect(Exception):
    """The only answer to this request is to close the connection; the message says why, for the broker's log."""


Reply = Message | Awaitable[Message] | None
Handler = Callable[[Request], Reply]
