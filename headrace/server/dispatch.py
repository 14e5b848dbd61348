"""From a frame to a handler and back: find the API, check the version, decode, call, encode, and take the time.

The table of APIs (api.table) is the only thing that decides what is served. ApiVersions is the one API that answers
a version it does not know, with its oldest layout, so that clients can find a common one (KIP-511).

What is too long for one turn of the event loop, be it the request, its handling or the response, goes on in
long_work.py; a request that is larger than its API allows closes the connection. The usual request pays for two
comparisons.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import GeneratorType
from typing import Any

from headrace.api.contract import Caller, Disconnect, Held, Parked, Reply, Request
from headrace.api.limits import AT_ONCE_ITEMS
from headrace.api.table import Api
from headrace.server.answering import Buffer
from headrace.server.long_work import LongWork, Result
from headrace.server.reply_frame import reply_frame
from headrace.server.requests_seen import RequestsSeen
from headrace.wire import frames
from headrace.wire.errors import TooManyItems
from headrace.wire.messages import Message, decode_request
from headrace.world.clock import Clock


class Dispatcher:
    def __init__(self, apis: Mapping[int, Api], seen: RequestsSeen, clock: Clock, long_work: LongWork) -> None:
        self._apis = apis
        self._seen = seen
        self._monotonic = clock.monotonic
        self._long_work = long_work

    def __call__(self, frame: memoryview, caller: Caller) -> list[Buffer] | PendingReply | ParkedReply | None:
        started = self._monotonic()
        header = frames.parse_request_header(frame)
        api_key, version, correlation_id, at = header
        api = self._apis.get(api_key)
        if api is None:
            raise Disconnect(f"API {api_key} is not served")
        if not api.lowest <= version <= api.highest:
            if api.unknown_version is None:
                raise Disconnect(f"{api.name} v{version} is not served, v{api.lowest} to v{api.highest} are")
            return reply_frame((api_key, 0, correlation_id, at), api.unknown_version())
        if len(frame) > api.most_bytes:
            raise Disconnect(f"{api.name}: a request of {len(frame):,} bytes; the limit is {api.most_bytes:,}")
        if api.guard is not None and not api.guard(caller):
            raise Disconnect(f"{caller.principal} may not use {api.name}")
        if api.express is not None:
            done = api.express(frame, version, at, correlation_id, caller)
            if isinstance(done, list):
                self._seen[api_key].note(self._monotonic() - started)
                return done
            if done is not None:
                return ParkedReply(self, header, started, caller, done)
        return self.in_full(frame, header, started, caller)

    def in_full(
        self,
        frame: memoryview,
        header: frames.RequestHeader,
        started: float,
        caller: Caller,
        *,
        has_waited: bool = False,
    ) -> list[Buffer] | PendingReply | None:
        """The way of a request that has passed the checks and that no express lane has answered."""
        api_key, version, _, at = header
        api = self._apis[api_key]

        def handle(body: Message) -> Reply:
            return api.handler(Request(api_key, version, client_id, body, caller, has_waited))

        client_id = frames.client_id(frame)
        try:
            body = decode_request(api_key, version, frame, at, api.at_once_items)
        except TooManyItems:
            later = self._long_work.request(header, bytes(frame), api.most_items, caller, handle)
            return PendingReply(self, header, started, caller, later, holds=True)
        return self.answer(header, started, caller, handle(body), holds=True)

    def answer(
        self, header: frames.RequestHeader, started: float, caller: Caller, reply: Any, *, holds: bool
    ) -> list[Buffer] | PendingReply | None:
        """What a handler has returned, or what was awaited for it (`Result`). Further steps of the former are part of
        stage one, and hold the connection."""
        if isinstance(reply, GeneratorType):
            try:
                next(reply)
            except StopIteration as done:
                reply = done.value
            else:
                rest = self._long_work.steps(header, caller, reply)
                return PendingReply(self, header, started, caller, rest, holds=holds)
        if isinstance(reply, Message):
            try:
                reply = reply_frame(header, reply, AT_ONCE_ITEMS)
            except TooManyItems:
                later = self._long_work.reply(header, caller, reply)
                return PendingReply(self, header, started, caller, later, holds=False)
        if reply is None or isinstance(reply, list):
            self.note(header[0], started)
            return reply
        if isinstance(reply, Held):
            kept = reply.kept_bytes
            return PendingReply(self, header, started, caller, reply.reply, holds=holds, kept_bytes=kept)
        return PendingReply(self, header, started, caller, reply, holds=False)

    def note(self, api_key: int, started: float) -> None:
        """A request was answered just now."""
        self._seen[api_key].note(self._monotonic() - started)


class PendingReply:
    __slots__ = ("_caller", "_dispatcher", "_header", "_started", "awaited", "holds", "kept_bytes")

    def __init__(
        self,
        dispatcher: Dispatcher,
        header: frames.RequestHeader,
        started: float,
        caller: Caller,
        awaited: Awaitable[Result],
        *,
        holds: bool,
        kept_bytes: int = 0,
    ) -> None:
        self._dispatcher = dispatcher
        self._header = header
        self._started = started
        self._caller = caller
        self.awaited = awaited
        self.holds = holds
        self.kept_bytes = kept_bytes

    def finish(self, reply: Result) -> list[Buffer] | PendingReply | None:
        return self._dispatcher.answer(self._header, self._started, self._caller, reply, holds=False)


class ParkedReply:
    """Of a request that the express lane answers later."""

    __slots__ = ("_caller", "_dispatcher", "_header", "_parked", "_started", "awaited")

    holds = False
    kept_bytes = 0

    def __init__(
        self, dispatcher: Dispatcher, header: frames.RequestHeader, started: float, caller: Caller, parked: Parked
    ) -> None:
        self._dispatcher = dispatcher
        self._header = header
        self._started = started
        self._caller = caller
        self._parked = parked
        self.awaited = parked.due

    def finish(self, _: object) -> list[Buffer] | PendingReply | None:
        chunks = self._parked.answer()
        if chunks is None:  # by now there is something unusual about it
            frame, header = self._parked.frame, self._header
            return self._dispatcher.in_full(frame, header, self._started, self._caller, has_waited=True)
        self._dispatcher.note(self._header[0], self._started)
        return chunks
