"""Long work on the event loop, in pieces with a turn for everybody else between them.

Work that may be long is a generator that yields after each piece (`Steps`): some hundreds of partitions, or a few
milliseconds. Short work ends before its first yield, and costs no more than a call. What is longer goes on in later
turns of the loop, one piece a turn whatever the number of requests that are at it.

Called by handlers: for stage one with `begin`, whose `Held` keeps the order of the connection's requests, and for what
comes later with `finish`. What the work looks at may change between two pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import TypeVar, cast

from headrace.api.contract import Held, Reply
from headrace.wire.messages import Message

PIECE = 500  # partitions: a few milliseconds, whatever is done with each

T = TypeVar("T")
Steps = Generator[None, None, T]
Answer = Message | Awaitable[Message]


class Pieces:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    def begin(self, steps: Steps[Answer]) -> Answer | Held:
        """The first piece, and the rest later if there is more."""
        try:
            next(steps)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        return Held(self._rest(steps))

    async def finish(self, steps: Steps[T]) -> T:
        """The whole work, for one that waits anyway."""
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        return await self._rest(steps)

    async def _rest(self, steps: Steps[T]) -> T:
        try:
            while True:
                async with self._turn:
                    await asyncio.sleep(0)
                    try:
                        next(steps)
                    except StopIteration as done:
                        return done.value  # type: ignore[no-any-return]
        finally:
            steps.close()


async def settled(answer: Reply) -> Message:
    """The message in the end, where there always is one."""
    if isinstance(answer, Held):
        answer = await answer.reply
    if isinstance(answer, Message):
        return answer
    return await cast("Awaitable[Message]", answer)
