"""One contract, two ways to compute off the loop: the operating system's thread and the simulated one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from headrace.world.threads import Computing, Threads, computing_thread
from sim.computing import SimComputing


@pytest.fixture(params=["real", "sim"])
def computing(request: pytest.FixtureRequest) -> Callable[[], Computing]:
    return computing_thread if request.param == "real" else lambda: SimComputing(random.Random(1))


def test_work_gives_its_result_and_its_error_back(computing: Callable[[], Computing]) -> None:
    async def main() -> None:
        thread = computing()
        assert await thread.off_loop(max, 3, 4) == 4
        with pytest.raises(ZeroDivisionError):
            await thread.off_loop(divmod, 1, 0)
        _close(thread)

    asyncio.run(main())


def test_pieces_of_work_are_done_one_at_a_time_in_the_order_of_the_calls(computing: Callable[[], Computing]) -> None:
    async def main() -> None:
        thread, begun = computing(), list[int]()
        working: list[int] = []

        def work(number: int) -> None:
            assert not working
            working.append(number)
            begun.append(number)
            working.remove(number)

        await asyncio.gather(*(thread.off_loop(work, number) for number in range(20)))
        assert begun == list(range(20))
        _close(thread)

    asyncio.run(main())


def _close(thread: Computing) -> None:
    if isinstance(thread, Threads):
        thread.close()
