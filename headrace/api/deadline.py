"""How long an admin request waits for the controller.

The controller's work is started before and goes on after: a client that gave up finds it done later. That is Kafka's
meaning of a timeout in these requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock

T = TypeVar("T")


async def settle(clock: Clock, timeout_ms: int, answers: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until every answer is there, or the time is up."""
    waiting = {answer for answer in answers if not answer.done()}
    if not waiting:
        return
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arrived(answer: asyncio.Future[Any]) -> None:
        waiting.discard(answer)
        if not answer.cancelled():
            answer.exception()  # looked at: one that comes too late to be told to anybody is no fault to log
        if not waiting:
            _wake(over)

    for answer in list(waiting):
        answer.add_done_callback(arrived)
    timer = clock.call_later(max(0, timeout_ms) / 1000, _wake, over)
    try:
        await over
    finally:
        timer.cancel()


def result_of(answer: asyncio.Future[T]) -> T:
    """What came of it; a KafkaError if it was refused or is not there yet."""
    if not answer.done():
        raise KafkaError(ErrorCode.request_timed_out, "not done in the time asked for; the work goes on")
    return answer.result()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
