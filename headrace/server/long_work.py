"""Requests and responses that take too long for one turn of the event loop, one after the other.

Called by the dispatcher (dispatch.py): with a request that has too many items to be decoded at once, with a handler's
steps that were not over after the first piece (api/pieces.py), and with a response that has too many items to be
encoded at once. Decoding and encoding run in the thread for computing, steps on the event loop, one piece a turn.

Everything that is large has the same turn, whoever asked for it: it is decoded, answered and encoded before the next
one begins, unless the answer has to wait for others. So one large request is in memory at a time, besides

- copies of frames that wait for their turn, which count as unfinished requests (unfinished.py): while there are too
  many, connections read less and wait for room;
- requests whose answers wait, which count in a budget of their own from before they are decoded, by what their items
  may take;
- encoded responses that are not sent yet, which count in the budget for replies.

Full garbage collections wait meanwhile (full_collections.py).

Invariant: whoever has the turn waits for nothing but the thread, the event loop, and for room for its reply, which
those who do not read theirs are made to give back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import GeneratorType
from typing import Any

from headrace.api.contract import Built, Caller, Held, Reply, Steps
from headrace.api.limits import AT_ONCE_ITEMS, ITEM_BYTES
from headrace.api.pieces import finish
from headrace.api.reply_budget import Grant, ReplyBudget, granted
from headrace.server.answering import Buffer
from headrace.server.full_collections import full_collections
from headrace.server.reply_frame import reply_frame
from headrace.server.unfinished import Copy, UnfinishedRequests
from headrace.wire import frames
from headrace.wire.errors import TooManyItems
from headrace.wire.messages import Message, decode_request
from headrace.world.threads import Computing

REQUESTS_BYTES = 256 << 20  # for all large requests that were decoded and are not answered yet

Result = Reply | list[Buffer]
Handle = Callable[[Message], Reply]


class LongWork:
    def __init__(self, computing: Computing, unfinished: UnfinishedRequests, replies: ReplyBudget) -> None:
        self._computing = computing
        self._unfinished = unfinished
        self._replies = replies
        self._requests = ReplyBudget(REQUESTS_BYTES)
        self._turn = asyncio.Lock()

    async def request(
        self, header: frames.RequestHeader, frame: bytes, most_items: int, caller: Caller, handle: Handle
    ) -> Result:
        """Decode a request and handle it, up to the end of stage one: its connection handles nothing else meanwhile."""
        waiting, grants = Copy(), list[Grant]()
        self._unfinished.keep(waiting, len(frame))
        try:
            grants.append(await self._requests.wait(min(len(frame), most_items) * ITEM_BYTES, caller))
            async with self._my_turn():
                api_key, version, _, at = header
                body = await self._computing.off_loop(
                    decode_request, api_key, version, memoryview(frame), at, most_items
                )
                result = await self._stage_one(header, caller, handle(body))
            return _keeping(grants.pop(), result) if isinstance(result, Awaitable) else result
        finally:
            grants.clear()  # now, since an exception keeps this frame for longer
            self._unfinished.release(waiting)

    async def steps(self, header: frames.RequestHeader, caller: Caller, steps: Steps[Any]) -> Result:
        """The rest of a handler's steps; the whole reply, if that is known then."""
        try:
            async with self._my_turn():
                return await self._stage_one(header, caller, steps)
        finally:
            steps.close()

    async def reply(self, header: frames.RequestHeader, caller: Caller, message: Message) -> list[Buffer]:
        async with self._my_turn():
            return await self._encoded(header, caller, message)

    @asynccontextmanager
    async def _my_turn(self) -> AsyncIterator[None]:
        async with self._turn:
            with full_collections.postponed():
                yield

    async def _stage_one(self, header: frames.RequestHeader, caller: Caller, reply: Reply) -> Result:
        if isinstance(reply, GeneratorType):
            reply = await finish(reply)
        if isinstance(reply, Held):
            reply = await reply.reply
        return await self._encoded(header, caller, reply) if isinstance(reply, Message) else reply

    async def _encoded(self, header: frames.RequestHeader, caller: Caller, message: Message) -> list[Buffer]:
        try:
            return reply_frame(header, message, AT_ONCE_ITEMS)
        except TooManyItems:
            chunks: list[Buffer] = await self._computing.off_loop(reply_frame, header, message)
        grant = await self._replies.wait(sum(map(len, chunks)), caller)
        chunks[-1] = granted(chunks[-1], grant)  # it leaves last
        return chunks


async def _keeping(grant: Grant, result: Awaitable[Built]) -> Built:
    """What a request takes counts until it is answered."""
    try:
        return await result
    finally:
        del grant  # now, since an exception keeps this frame for longer
