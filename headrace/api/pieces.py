"""Long work on the event loop, in pieces with a turn for everybody else between them.

Work that may be long is a generator that yields after each piece (`Steps`): some hundreds of partitions, or a few
milliseconds. Short work ends before its first yield, and costs no more than a call. What is longer goes on in later
turns of the loop, one piece a turn whatever the number of requests that are at it.

A handler returns its steps to the dispatcher, which goes on with one handler's after the other's (server/long_work.py).
Fetch, which has the time of its clients in view, takes turns among its own requests (`Pieces`): for stage one with
`begin`, whose `Held` keeps the order of the connection's requests, and for what comes later with `finish`. What the
work looks at may change between two pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from types import GeneratorType
from typing import TypeVar, cast

from headrace.api.contract import Held, Reply, Steps
from headrace.wire.messages import Message

PIECE = 500  # partitions: a few milliseconds, whatever is done with each

T = TypeVar("T")
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


class Pace:
    """Counts what a handler does, and says when a piece is over."""

    __slots__ = ("_left", "_most")

    def __init__(self, most: int | None = None) -> None:
        self._left = self._most = PIECE if most is None else most

    def is_over(self, done: int = 1) -> bool:
        """So many more are done: is it time to yield?"""
        self._left -= done
        if self._left > 0:
            return False
        self._left = self._most
        return True


async def finish(steps: Steps[T]) -> T:
    """All steps, each in a turn of the event loop."""
    try:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            await asyncio.sleep(0)
    finally:
        steps.close()


async def in_turns(items: Iterable[T], most: int | None = None) -> AsyncIterator[T]:
    """For a coroutine that does something with each of `items`, and may do so without waiting for anything."""
    pace = Pace(most)
    for item in items:
        yield item
        if pace.is_over():
            await asyncio.sleep(0)


async def settled(answer: Reply) -> Message:
    """The message in the end, where there always is one."""
    while not isinstance(answer, Message):
        if isinstance(answer, GeneratorType):
            answer = await finish(answer)
        elif isinstance(answer, Held):
            answer = await answer.reply
        else:
            answer = await cast("Awaitable[Reply]", answer)
    return answer
