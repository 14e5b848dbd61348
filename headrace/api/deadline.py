"""How long an admin request waits for the controller.

The controller starts the work before the wait, and continues after a timeout, so a client that gave up finds it done
later. This is what Kafka's timeout means in these requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock

T = TypeVar("T")


async def settle(clock: Clock, timeout_ms: int, answers: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until all answers have arrived, or the timeout has expired."""
    waiting = {answer for answer in answers if not answer.done()}
    if not waiting:
        return
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arrived(answer: asyncio.Future[Any]) -> None:
        waiting.discard(answer)
        if not answer.cancelled():
            answer.exception()  # retrieved, so that asyncio does not log an error that arrives after the timeout
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
    """The result; raises KafkaError if it was rejected or has not arrived yet."""
    if not answer.done():
        raise KafkaError(ErrorCode.request_timed_out, "not done within the timeout; the work continues")
    return answer.result()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
