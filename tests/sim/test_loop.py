"""The virtual-time loop: time jumps, order is fixed, deadlocks are named, one seed is one history."""

import asyncio

import pytest

from sim.loop import DAY_S, START_MS, Deadlock, Overtime, SimClock, run


def test_a_month_of_sleep_takes_no_time_and_ends_at_the_exact_moment() -> None:
    async def main() -> float:
        for _ in range(29):
            await asyncio.sleep(DAY_S)
        await asyncio.sleep(0.1)
        return asyncio.get_running_loop().time()

    assert run(main(), seed=0) == 29 * DAY_S + 0.1


def test_timers_fire_by_time_and_equal_ones_in_the_order_they_were_set() -> None:
    async def main() -> list[int]:
        fired: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(50):
            loop.call_at(5.0, fired.append, number)
        loop.call_at(4.0, fired.append, -1)
        await asyncio.sleep(6)
        return fired

    assert run(main(), seed=0) == [-1, *range(50)]


def test_a_cancelled_timer_neither_fires_nor_moves_the_time() -> None:
    async def main() -> tuple[list[str], float]:
        fired: list[str] = []
        loop = asyncio.get_running_loop()
        for _ in range(500):  # many, so that the loop sweeps its heap
            loop.call_later(1, fired.append, "cancelled").cancel()
        await asyncio.sleep(3)
        return fired, loop.time()

    assert run(main(), seed=0) == ([], 3.0)


def test_timeouts_and_task_groups_work_as_on_a_real_loop() -> None:
    async def main() -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(asyncio.sleep(3600, "slow"))
            group.create_task(asyncio.sleep(1))
        return slow.result()

    assert run(main(), seed=0) == "slow"


def test_waiting_for_what_nobody_will_do_is_a_deadlock_that_names_the_waiters() -> None:
    async def lost() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(lost(), name="the lost one")

    with pytest.raises(Deadlock, match=r"(?s)nothing is left to run at 0\.000 s.*the lost one.*lost.*test_loop\.py"):
        run(main(), seed=0)


def test_a_background_rhythm_does_not_hide_a_story_that_never_ends() -> None:
    async def main() -> None:
        async def tick() -> None:
            while True:
                await asyncio.sleep(60)

        ticking = asyncio.create_task(tick())
        await asyncio.Event().wait()
        ticking.cancel()

    with pytest.raises(Overtime, match="passed 3600 s"):
        run(main(), seed=0, limit_s=3600)


def test_an_error_carries_the_seed_that_repeats_it() -> None:
    async def main() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        run(main(), seed=4711)
    assert "simulation seed 4711" in caught.value.__notes__


async def race() -> list[int]:
    """Ten pieces of blocking work, started at once; the order in which they end."""
    ended: list[int] = []
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(loop.run_in_executor(None, ended.append, number) for number in range(10)))
    return ended


def test_one_seed_is_one_history_and_another_seed_is_another() -> None:
    histories = {seed: run(race(), seed) for seed in range(5)}
    assert histories == {seed: run(race(), seed) for seed in range(5)}
    assert len({tuple(history) for history in histories.values()}) == 5
    assert all(sorted(history) == list(range(10)) for history in histories.values())


def test_blocking_work_hands_its_error_to_whoever_waits() -> None:
    def fail() -> None:
        raise OSError("no such disk")

    async def main() -> None:
        with pytest.raises(OSError, match="no such disk"):
            await asyncio.get_running_loop().run_in_executor(None, fail)

    run(main(), seed=0)


def test_cancelled_blocking_work_is_not_begun() -> None:
    async def main() -> list[str]:
        done: list[str] = []
        asyncio.get_running_loop().run_in_executor(None, done.append, "work").cancel()
        await asyncio.sleep(1)
        return done

    assert run(main(), seed=0) == []


def test_the_wall_clock_jumps_alone() -> None:
    async def main() -> tuple[int, int, float]:
        clock = SimClock()
        woken: list[float] = []
        clock.call_later(10, lambda: woken.append(clock.monotonic()))
        clock.jump(-3_600_000)
        before = clock.now_ms()
        await clock.sleep(10)
        return before, clock.now_ms(), woken[0]

    assert run(main(), seed=0) == (START_MS - 3_600_000, START_MS - 3_590_000, 10.0)


def test_leftover_tasks_are_cancelled_and_get_to_clean_up() -> None:
    cleaned: list[str] = []

    async def lingering() -> None:
        try:
            await asyncio.sleep(DAY_S)
        finally:
            cleaned.append("yes")

    async def main() -> None:
        leftover = asyncio.create_task(lingering())
        await asyncio.sleep(1)
        assert not leftover.done()

    run(main(), seed=0)
    assert cleaned == ["yes"]
