"""What a handler is.

Stage one is a plain call: `handler(request)` does everything that must happen in the order of the connection's
requests (an append, a join) before it returns. It returns either the response, or an awaitable of it when the answer
must wait (stage two); meanwhile the connection goes on with the next request, and replies still leave in order.
None means that no reply is sent (Produce with acks=0).

Views into the request's buffer (`records`) are valid in stage one only.

An API may have an express lane beside its handler, which reads the usual request and writes its answer by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from headrace.wire.batches import Buffer
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


class Parked(Protocol):
    """A request that the express lane answers later."""

    frame: memoryview  # a copy that lasts
    due: asyncio.Future[None]  # done when it is to be answered; whoever cancels it wants no answer any more

    def answer(self) -> list[Buffer] | None:
        """As the lane itself, once it is due."""
        ...


Reply = Message | Awaitable[Message] | None
Handler = Callable[[Request], Reply]
# (frame, version, where the body begins, correlation id) -> the whole reply; None if the handler must do it
Express = Callable[[memoryview, int, int, int], list[Buffer] | Parked | None]
