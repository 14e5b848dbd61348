"""From a frame to a handler and back: find the API, check the version, decode, call, encode, and take the time.

The table of APIs (api.table) is the only thing that decides what is served. ApiVersions is the one API that answers
a version it does not know, with its oldest layout, so that clients can find a common one (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Mapping

from headrace.api.contract import Caller, Disconnect, Held, Parked, Reply, Request
from headrace.api.table import Api
from headrace.server.answering import Buffer
from headrace.server.requests_seen import RequestsSeen
from headrace.wire import frames
from headrace.wire.messages import Message, decode_request, encode_response
from headrace.world.clock import Clock

_SIZE = struct.Struct(">i")


class Dispatcher:
    def __init__(self, apis: Mapping[int, Api], seen: RequestsSeen, clock: Clock) -> None:
        self._apis = apis
        self._seen = seen
        self._monotonic = clock.monotonic

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
            return _encode(api_key, 0, correlation_id, api.unknown_version())
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
        body = decode_request(api_key, version, frame, at)
        request = Request(api_key, version, frames.client_id(frame), body, caller, has_waited)
        return self.answer(header, started, self._apis[api_key].handler(request))

    def answer(self, header: frames.RequestHeader, started: float, reply: Reply) -> list[Buffer] | PendingReply | None:
        """What a handler has returned, or what was awaited for it."""
        api_key, version, correlation_id, _ = header
        if isinstance(reply, Message):
            chunks = _encode(api_key, version, correlation_id, reply)
        elif reply is None:
            chunks = None
        elif isinstance(reply, Held):
            return PendingReply(self, header, started, reply.reply, holds=True, kept_bytes=reply.kept_bytes)
        else:
            return PendingReply(self, header, started, reply, holds=False)
        self.note(api_key, started)
        return chunks

    def note(self, api_key: int, started: float) -> None:
        """A request was answered just now."""
        self._seen[api_key].note(self._monotonic() - started)


class PendingReply:
    __slots__ = ("_dispatcher", "_header", "_started", "awaited", "holds", "kept_bytes")

    def __init__(
        self,
        dispatcher: Dispatcher,
        header: frames.RequestHeader,
        started: float,
        awaited: Awaitable[Reply],
        *,
        holds: bool,
        kept_bytes: int = 0,
    ) -> None:
        self._dispatcher = dispatcher
        self._header = header
        self._started = started
        self.awaited = awaited
        self.holds = holds
        self.kept_bytes = kept_bytes

    def finish(self, reply: Reply) -> list[Buffer] | PendingReply | None:
        return self._dispatcher.answer(self._header, self._started, reply)


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


def _encode(api_key: int, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    chunks = encode_response(api_key, version, message)
    head = frames.response_prefix(api_key, version, correlation_id)
    size = len(head) + sum(len(chunk) for chunk in chunks)
    return [_SIZE.pack(size) + head, *chunks]
