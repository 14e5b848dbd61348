"""The loop that knows when nothing is left to do."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from headrace.testing.quiet_loop import QuietLoop
from headrace.world.clock import AdvanceableClock

PATIENCE_S = 20.0


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=QuietLoop) as runner:
        runner.run(main)


async def rest(clock: AdvanceableClock | None = None, patience_s: float = PATIENCE_S) -> bool:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuietLoop)
    return await loop.rest(lambda: clock.advance(0) if clock else None, patience_s)


def test_an_idle_loop_rests_at_once_although_timers_are_set_and_tasks_wait() -> None:
    async def main() -> None:
        waiting = asyncio.create_task(asyncio.sleep(3600))
        assert await rest()
        assert not waiting.done()
        waiting.cancel()

    run(main())


def test_a_long_chain_of_steps_is_finished_before_the_loop_rests() -> None:
    async def main() -> None:
        steps = 0

        async def chain() -> None:
            nonlocal steps
            for _ in range(1000):
                await asyncio.sleep(0)
                steps += 1

        chained = asyncio.create_task(chain())
        assert await rest()
        assert steps == 1000
        assert chained.done()

    run(main())


def test_work_in_threads_and_what_follows_it_is_finished_before_the_loop_rests() -> None:
    async def main() -> None:
        done: list[str] = []

        async def work() -> None:
            for _ in range(3):
                await asyncio.to_thread(time.sleep, 0.01)  # the thread's work itself takes real time
                await asyncio.sleep(0)
            done.append("all")

        working = asyncio.create_task(work())
        assert await rest()
        assert done == ["all"]
        assert working.done()

    run(main())


def test_what_falls_due_by_a_push_of_the_clock_is_done_before_the_loop_rests() -> None:
    async def main() -> None:
        clock = AdvanceableClock()
        done: list[str] = []

        async def retention() -> None:
            await clock.sleep(15 * 86_400)
            done.append("checked")
            await clock.sleep(0)  # due at once, but by a timer of its own
            await asyncio.to_thread(done.append, "removed")
            await clock.sleep(60)
            done.append("not yet due")

        task = asyncio.create_task(retention())
        assert await rest(clock)
        clock.advance(15 * 86_400)
        assert await rest(clock)
        assert done == ["checked", "removed"]
        task.cancel()

    run(main())


def test_a_loop_that_never_comes_to_rest_is_reported() -> None:
    async def main() -> None:
        async def busy() -> None:
            while True:
                await asyncio.sleep(0)

        task = asyncio.create_task(busy())
        assert not await rest(patience_s=0.05)
        task.cancel()

    run(main())
