"""Processes of a simulation: paused, they find their timers when they go on; killed, they never run again."""

from __future__ import annotations

import asyncio
import threading

from sim.cluster import SimCluster
from sim.loop import run
from sim.process import Process


async def tick(seen: list[float]) -> None:
    try:
        while True:
            await asyncio.sleep(1)
            seen.append(asyncio.get_running_loop().time())
    finally:
        seen.append(-1)


def test_a_paused_process_does_nothing_and_goes_on_where_it_was() -> None:
    async def story() -> tuple[list[float], list[float]]:
        paused, other = Process("paused"), Process("other")
        seen: tuple[list[float], list[float]] = ([], [])
        paused.start(tick(seen[0]))
        other.start(tick(seen[1]))
        await asyncio.sleep(2.5)
        paused.pause()
        await asyncio.sleep(5)
        paused.resume()
        await asyncio.sleep(1.2)
        return list(seen[0]), list(seen[1])

    assert run(story(), seed=0) == ([1, 2, 7.5, 8.5], [1, 2, 3, 4, 5, 6, 7, 8])


def test_a_process_that_goes_on_handles_what_waited_before_what_comes_in_that_moment() -> None:
    async def story() -> list[str]:
        process, loop = Process("paused"), asyncio.get_running_loop()
        seen: list[str] = []
        process.pause()
        loop.call_soon(seen.append, "a connection", context=process.context)
        loop.call_soon(seen.append, "its first byte", context=process.context)
        await asyncio.sleep(1)
        loop.call_soon(seen.append, "its second byte", context=process.context)
        process.resume()
        await asyncio.sleep(1)
        return list(seen)

    assert run(story(), seed=0) == ["a connection", "its first byte", "its second byte"]


def test_a_killed_process_stops_without_a_last_word() -> None:
    async def story() -> list[float]:
        victim = Process("victim")
        seen: list[float] = []
        victim.start(tick(seen))
        await asyncio.sleep(2.5)
        victim.kill()
        await asyncio.sleep(10)
        return list(seen)

    assert run(story(), seed=0) == [1, 2]


def test_what_a_process_starts_belongs_to_it() -> None:
    async def parent(seen: list[float]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(tick(seen))
            asyncio.get_running_loop().call_later(3, seen.append, 3.0)

    async def story() -> list[float]:
        process = Process("parent")
        seen: list[float] = []
        process.start(parent(seen))
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(4)
        process.kill()
        return list(seen)

    assert run(story(), seed=0) == [1]


def test_a_cluster_is_buried_while_another_thread_makes_rubbish() -> None:
    """Such as a broker that tests on Spark share: sweeping until nothing was left took for ever."""
    over = threading.Event()

    def litter() -> None:
        while not over.is_set():
            mess: list[object] = []
            mess.append(mess)

    async def story() -> None:
        cluster = SimCluster(1)
        cluster.start()
        await asyncio.sleep(1)
        cluster.bury()

    litterer = threading.Thread(target=litter, daemon=True)
    litterer.start()
    try:
        run(story(), seed=1)
    finally:
        over.set()
        litterer.join(60)
