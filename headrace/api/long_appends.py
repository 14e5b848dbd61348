"""Appends whose batches take too long to open on the event loop: prepared in a thread, one at a time.

Called by produce.py with an append that was `Unprepared` (log/opening.py). What its step asks for is computed off the
event loop, and then the append is tried again: it looks up its partition, role, epoch and sequences anew, decides anew
which records stay, and writes with no await in between. So whatever has happened meanwhile, it is as if the request had
come now.

Invariant: the batches of one append at most are open, from the first step of an append to its last: whoever else needs
that waits, in the order of coming. A step ends by itself, and so does the waiting for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headrace.log.opening import Opened, Step, Unprepared
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.threads import Computing

TRIES = 5  # the first opens the batches, the second leaves out known ids; more are needed if other ids came meanwhile

T = TypeVar("T")


class LongAppends:
    def __init__(self, computing: Computing) -> None:
        self._computing = computing
        self._turn = asyncio.Lock()

    async def finish(self, step: Step, records: memoryview, append: Callable[[Opened], T]) -> T:
        """What `append` returns when it is prepared. `records` must last until then."""
        async with self._turn:
            for _ in range(TRIES):
                prepared = await self._computing.off_loop(step, records)
                try:
                    return _refused_alone(append, prepared)
                except Unprepared as more:
                    step = more.step
            return _refused_alone(append, prepared._replace(problem=_restless()))


def _refused_alone(append: Callable[[Opened], T], prepared: Opened) -> T:
    """As `append`. A problem that it has raised forgets its frames, which know what was prepared, the problem too: such
    a circle would keep the memory of a large request until somebody looks for circles."""
    try:
        return append(prepared)
    finally:
        if prepared.problem is not None:
            prepared.problem.__traceback__ = None


def _restless() -> KafkaError:
    return KafkaError(
        ErrorCode.kafka_storage_error,
        f"while the batches were opened, the topic's ids or settings changed {TRIES} times; try again",
    )
