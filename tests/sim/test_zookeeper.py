"""The faults of the simulated ZooKeeper; what it has in common with every home is in tests/contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.cluster.store import ConnectionLost, SessionLost, SessionState
from sim.loop import run
from sim.process import Process
from sim.zookeeper import SESSION_TIMEOUT_S, SimZooKeeper

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


def play(story: Callable[[SimZooKeeper], Coroutine[Any, Any, None]], seeds: int = 5) -> None:
    for seed in range(seeds):

        async def main(seed: int = seed) -> None:
            await story(SimZooKeeper(seed))

        run(main(), seed)


def test_a_short_cut_is_not_even_noticed() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        store = await ensemble.connect("a")
        states: list[SessionState] = []
        store.on_session(states.append)
        ensemble.cut("a")
        made = asyncio.ensure_future(store.create("/x", ephemeral=True))
        await asyncio.sleep(SESSION_TIMEOUT_S / 4)
        assert not made.done()
        ensemble.mend("a")
        await made
        assert states == []

    play(story)


def test_a_longer_cut_suspends_and_leaves_open_whether_a_write_was_done() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        store = await ensemble.connect("a")
        states: list[SessionState] = []
        store.on_session(states.append)
        await store.create("/x", b"0")
        ensemble.cut("a")
        with pytest.raises(ConnectionLost):
            await store.set("/x", b"1")
        assert states == [SUSPENDED]
        ensemble.mend("a")
        assert (await store.get("/x"))[0] in (b"0", b"1")
        assert states == [SUSPENDED, CONNECTED]

    play(story)


def test_a_silent_session_ends_and_its_client_learns_of_it_when_it_is_back() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        store, other = await ensemble.connect("a"), await ensemble.connect("b")
        states: list[SessionState] = []
        store.on_session(states.append)
        await store.create("/mine", ephemeral=True)
        await other.sync()
        gone: asyncio.Queue[str] = asyncio.Queue()
        assert await other.exists("/mine", gone.put_nowait) is not None
        ensemble.cut("a")
        assert await gone.get() == "/mine"
        assert states == [SUSPENDED]
        ensemble.mend("a")
        with pytest.raises(SessionLost):
            await store.get("/")
        assert states == [SUSPENDED, LOST]
        with pytest.raises(SessionLost):
            await store.create("/mine")

    play(story)


def test_a_session_ends_unnoticed_at_a_server_that_is_cut_off_from_the_others_and_answers_reads() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        store, other = await ensemble.connect("a"), await ensemble.connect("b")
        states: list[SessionState] = []
        store.on_session(states.append)
        await store.create("/mine", b"old", ephemeral=True)
        ensemble.strand("a")
        await asyncio.sleep(SESSION_TIMEOUT_S + 1)
        await other.sync()
        assert await other.exists("/mine") is None
        assert (await store.get("/mine"))[0] == b"old"
        assert states == []
        synced = asyncio.ensure_future(store.sync())
        await asyncio.sleep(0.1)
        read = asyncio.ensure_future(store.get("/mine"))
        await asyncio.sleep(0.5)
        assert not synced.done()
        assert not read.done(), "a server keeps the order of a session's requests"
        ensemble.mend("a")
        for asked in (synced, read):
            with pytest.raises(SessionLost):
                await asked
        assert states == [LOST]

    play(story)


def test_what_waited_at_a_server_that_is_soon_back_is_done() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        store, other = await ensemble.connect("a"), await ensemble.connect("b")
        await store.create("/x", b"0")
        ensemble.strand("a")
        await other.sync()
        await other.set("/x", b"1")
        assert (await store.get("/x"))[0] == b"0"
        made = asyncio.ensure_future(store.create("/mine", ephemeral=True))
        await asyncio.sleep(SESSION_TIMEOUT_S / 4)
        assert not made.done()
        ensemble.mend("a")
        await made
        assert (await store.get("/x"))[0] == b"1"

    play(story)


def test_who_is_cut_off_with_a_server_opens_no_session_there() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        await ensemble.connect("a")
        ensemble.strand("a")
        again = asyncio.ensure_future(ensemble.connect("a"))
        await asyncio.sleep(2 * SESSION_TIMEOUT_S)
        assert not again.done()
        ensemble.mend("a")
        await again

    play(story)


def test_a_paused_client_loses_its_session_as_a_silent_one_does() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        process = Process("a")
        store = await process.start(ensemble.connect("a"))
        states: list[SessionState] = []
        store.on_session(states.append)
        process.pause()
        await asyncio.sleep(2 * SESSION_TIMEOUT_S)
        assert states == []
        process.resume()
        await asyncio.sleep(1)
        assert states[-1] is LOST

    play(story)


def test_a_lost_reply_is_a_write_that_happened() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        store = await ensemble.connect("a")
        ensemble.lose_reply("a")
        with pytest.raises(ConnectionLost):
            await store.create("/x", b"done")
        assert (await store.get("/x"))[0] == b"done"

    play(story)


def test_a_watch_that_waited_while_the_connection_was_away_is_told_to_look_again() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        store, other = await ensemble.connect("a"), await ensemble.connect("b")
        await store.create("/x")
        seen: asyncio.Queue[str] = asyncio.Queue()
        await store.get("/x", seen.put_nowait)
        ensemble.cut("a")
        await other.sync()
        await other.set("/x", b"1")
        ensemble.break_connection("a")
        ensemble.mend("a")
        assert await seen.get() == "/x"
        assert (await store.get("/x"))[0] == b"1"
        assert seen.empty()

    play(story)


def test_others_may_read_what_is_old_until_they_sync() -> None:
    stale = 0

    async def story(ensemble: SimZooKeeper) -> None:
        nonlocal stale
        writer, reader = await ensemble.connect("a"), await ensemble.connect("b")
        await writer.create("/x", b"old")
        await reader.sync()
        await writer.set("/x", b"new")
        stale += (await reader.get("/x"))[0] == b"old"
        await reader.sync()
        assert (await reader.get("/x"))[0] == b"new"

    play(story, seeds=20)
    assert stale, "no reader ever saw an old value"


def test_no_session_ends_while_the_ensemble_is_down() -> None:
    async def story(ensemble: SimZooKeeper) -> None:
        store = await ensemble.connect("a")
        states: list[SessionState] = []
        store.on_session(states.append)
        await store.create("/mine", ephemeral=True)
        ensemble.stop()
        await asyncio.sleep(60)
        ensemble.start()
        assert await store.exists("/mine") is not None
        assert states == [SUSPENDED, CONNECTED]

    play(story)


def test_one_seed_is_one_history() -> None:
    async def story() -> list[tuple[float, bytes]]:
        ensemble = SimZooKeeper(7)
        one, other = await ensemble.connect("a"), await ensemble.connect("b")
        await one.create("/x")
        await other.sync()
        seen: list[tuple[float, bytes]] = []
        for at in range(50):
            await one.set("/x", str(at).encode())
            seen.append((asyncio.get_running_loop().time(), (await other.get("/x"))[0]))
        return seen

    assert run(story(), seed=7) == run(story(), seed=7)
