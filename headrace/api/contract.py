"""What a handler is.

Stage one is a plain call: `handler(request)` does everything that must happen in the order of the connection's
requests (an append, a join) before it returns. It returns either the response, or an awaitable of it when the answer
must wait (stage two); meanwhile the connection goes on with the next request, and replies still leave in order.
None means that no reply is sent (Produce with acks=0).

A request whose stage one takes long answers `Held`: stage one goes on in later turns of the event loop, or in a thread,
and the connection handles nothing else until it is over. So the order of requests stays the order of their effects.
A handler whose work grows with what is asked, or with the cluster, is a generator that yields after each piece
(`Steps`, see api.pieces). What needs more than one piece is held likewise, by the dispatcher. Building a response that
was waited for may be such work too: an awaitable may give steps.

Views into the request's buffer (`records`) are valid in stage one only.

An API may have an express lane beside its handler, which reads the usual request and writes its answer by hand. Both
are told who sent the request (`Caller`), so that both can ask the gate (api.gate) what is allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Struct

from headrace.wire.batches import Buffer
from headrace.wire.messages import Message

T = TypeVar("T")
Steps = Generator[None, None, T]

ANONYMOUS = "User:ANONYMOUS"
PLAINTEXT = "PLAINTEXT"


class Peer(Struct, frozen=True):
    """The addresses of a connection: the client's, and the one of ours at which it arrived."""

    host: str
    port: int
    local_host: str
    local_port: int


class Caller(Struct, frozen=True):
    """Who sends the requests of a connection. Made once per connection, by the connection.

    The client id is not here: each request carries its own. `Request` has it; an express lane that needs it reads it
    from the frame (`wire.frames.client_id`), since most requests are answered without it.
    """

    peer: Peer
    principal: str = ANONYMOUS  # as Kafka writes it: type and name
    listener: str = PLAINTEXT  # the name of the listener that accepted the connection


class Request(Struct, frozen=True):
    api_key: int
    version: int
    client_id: str
    body: Message
    caller: Caller
    has_waited: bool = False
    """The express lane has waited for this request already: answer it with what there is."""

    @property
    def peer(self) -> Peer:
        return self.caller.peer


class Disconnect(Exception):
    """The only answer to this request is to close the connection; the message says why, for the broker's log."""


class Parked(Protocol):
    """A request that the express lane answers later."""

    frame: memoryview  # a copy that lasts
    due: asyncio.Future[None]  # done when it is to be answered; whoever cancels it wants no answer any more

    def answer(self) -> list[Buffer] | None:
        """As the lane itself, once it is due."""
        ...


class Held(NamedTuple):
    """Stage one of a request goes on. The views into the request's buffer do not last that long."""

    reply: Awaitable[Message | Awaitable[Message] | None]
    kept_bytes: int = 0
    """Of the request that were copied, and are kept until stage one is over."""


Built = Message | Steps[Message]
Reply = Message | Awaitable[Built] | Held | Steps[Message | Awaitable[Built] | Held | None] | None
Handler = Callable[[Request], Reply]
# (frame, version, where the body begins, correlation id, caller) -> the whole reply; None if the handler must do it
Express = Callable[[memoryview, int, int, int, Caller], list[Buffer] | Parked | None]
