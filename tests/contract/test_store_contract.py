"""What every home of the metadata tree must do, whoever implements it.

A home is an async context manager that gives a way to open sessions on one tree. To add one, append it to HOMES; the
tests that need two sessions at once are skipped for homes that have only one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.embedded import EmbeddedStore
from headrace.cluster.store import (
    MAX_BYTES,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionLost,
    Set,
    Store,
    TooLarge,
)
from headrace.cluster.zookeeper import ZooKeeperStore
from headrace.world.clock import SystemClock
from headrace.world.disk import RealDisk
from sim.zookeeper import SimZooKeeper
from tests.zookeeper import fresh_hosts

OpenSession = Callable[[], Awaitable[Store]]


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[OpenSession]:
    disk = RealDisk()
    opened: list[EmbeddedStore] = []

    async def open_session() -> Store:
        store = EmbeddedStore(disk, folder / "metadata.db")
        await store.open()
        opened.append(store)
        return store

    try:
        yield open_session
    finally:
        for store in opened:
            await store.close()
        disk.close()


@asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[OpenSession]:
    ensemble = SimZooKeeper()
    opened: list[Store] = []

    async def open_session() -> Store:
        opened.append(await ensemble.connect("client"))
        return opened[-1]

    try:
        yield open_session
    finally:
        for store in opened:
            await store.close()


@asynccontextmanager
async def zookeeper(folder: Path) -> AsyncIterator[OpenSession]:
    hosts = f"{await asyncio.to_thread(fresh_hosts)}/deeper"
    opened: list[ZooKeeperStore] = []

    async def open_session() -> Store:
        store = ZooKeeperStore(hosts, 5.0, SystemClock())
        await store.open()
        opened.append(store)
        return store

    try:
        yield open_session
    finally:
        for store in opened:
            await store.close()


HOMES = [
    pytest.param(embedded, id="embedded"),
    pytest.param(simulated, id="simulated"),
    pytest.param(zookeeper, id="zookeeper"),
]
Story = Callable[[OpenSession], Awaitable[None]]


@pytest.fixture(params=HOMES)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Story], None]:
    """Runs a story against one home."""

    def run(story: Story) -> None:
        async def whole() -> None:
            async with request.param(tmp_path) as open_session:
                await asyncio.wait_for(story(open_session), 30)

        asyncio.run(whole())

    return run


Play = Callable[[Story], None]


def test_a_created_node_has_its_data_and_version_zero(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        made = await store.create("/a", b"hello")
        assert (made.version, made.ephemeral_owner) == (0, 0)
        assert await store.get("/a") == (b"hello", made)
        assert await store.exists("/a") == made
        assert await store.exists("/b") is None

    play(story)


def test_every_set_raises_the_version_by_one_and_the_transaction_number(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        made = await store.create("/a")
        first = await store.set("/a", b"1", 0)
        second = await store.set("/a", b"2")
        assert (first.version, second.version) == (1, 2)
        assert made.czxid == first.czxid == second.czxid
        assert made.mzxid < first.mzxid < second.mzxid

    play(story)


def test_a_write_that_expects_another_version_changes_nothing(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        await store.create("/a", b"old")
        with pytest.raises(BadVersion):
            await store.set("/a", b"new", 3)
        with pytest.raises(BadVersion):
            await store.delete("/a", 3)
        data, stat = await store.get("/a")
        assert (data, stat.version) == (b"old", 0)

    play(story)


def test_missing_nodes_and_parents_are_named(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        attempts: list[Awaitable[Any]] = [
            store.get("/no"),
            store.children("/no"),
            store.set("/no", b""),
            store.delete("/no"),
            store.create("/no/child"),
        ]
        for attempt in attempts:
            with pytest.raises(NoNode):
                await attempt

    play(story)


def test_a_node_is_created_once_and_deleted_without_children_only(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        await store.create("/a")
        await store.create("/a/b")
        with pytest.raises(NodeExists):
            await store.create("/a")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.delete("/a/b")
        await store.delete("/a")
        assert await store.exists("/a") is None

    play(story)


def test_children_are_the_names_below_a_node_and_no_deeper(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        for path in ("/a", "/a/y", "/a/x", "/a/x/deep", "/ab"):
            await store.create(path)
        assert await store.children("/a") == ["x", "y"]
        assert await store.children("/a/y") == []

    play(story)


def test_a_multi_does_everything_in_order(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        await store.create("/old")
        made, checked, changed, gone = await store.multi(
            [Create("/a", b"1"), Check("/a", 0), Set("/a", b"2", 0), Delete("/old", 0)]
        )
        assert checked is None
        assert gone is None
        assert made is not None
        assert changed is not None
        assert (made.version, changed.version) == (0, 1)
        assert made.czxid == changed.mzxid
        assert (await store.get("/a"))[0] == b"2"
        assert await store.exists("/old") is None

    play(story)


def test_a_multi_that_fails_anywhere_does_nothing(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        await store.create("/epoch")
        await store.create("/kept", b"old")
        with pytest.raises(BadVersion):
            await store.multi(
                [Create("/a"), Set("/kept", b"new"), Delete("/epoch"), Create("/epoch"), Check("/epoch", 7)]
            )
        assert await store.exists("/a") is None
        assert (await store.get("/kept"))[0] == b"old"
        assert (await store.exists("/epoch")) is not None

    play(story)


def test_calls_take_effect_in_their_order_without_waiting_between(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        await store.create("/n")
        writes = [asyncio.ensure_future(store.set("/n", str(at).encode(), at)) for at in range(50)]
        stats = await asyncio.gather(*writes)
        assert [stat.version for stat in stats] == list(range(1, 51))
        assert (await store.get("/n"))[0] == b"49"

    play(story)


def test_one_failed_write_among_waiting_ones_fails_alone(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        results = await asyncio.gather(
            store.create("/a"), store.create("/a"), store.create("/b"), return_exceptions=True
        )
        assert isinstance(results[1], NodeExists)
        assert {"a", "b"} <= set(await store.children("/"))

    play(story)


def test_a_watch_fires_once_and_after_the_change_can_be_read(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        await store.create("/a", b"0")
        seen: asyncio.Queue[str] = asyncio.Queue()
        await store.get("/a", seen.put_nowait)
        await store.set("/a", b"1")
        assert await seen.get() == "/a"
        assert (await store.get("/a"))[0] == b"1"
        await store.set("/a", b"2")
        await store.sync()
        assert seen.empty()

    play(story)


def test_watches_see_creation_deletion_and_children(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        await store.create("/a")
        born: asyncio.Queue[str] = asyncio.Queue()
        family: asyncio.Queue[str] = asyncio.Queue()
        await store.exists("/a/b", born.put_nowait)
        await store.children("/a", family.put_nowait)
        await store.create("/a/b")
        assert await born.get() == "/a/b"
        assert await family.get() == "/a"
        died: asyncio.Queue[str] = asyncio.Queue()
        await store.get("/a/b", died.put_nowait)
        await store.children("/a", family.put_nowait)
        await store.delete("/a/b")
        assert await died.get() == "/a/b"
        assert await family.get() == "/a"

    play(story)


def test_a_write_that_fails_wakes_no_watch(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        await store.create("/a")
        seen: asyncio.Queue[str] = asyncio.Queue()
        await store.get("/a", seen.put_nowait)
        with pytest.raises(BadVersion):
            await store.multi([Set("/a", b"x"), Check("/a", 9)])
        await store.create("/other")
        assert seen.empty()

    play(story)


def test_ephemeral_nodes_go_with_their_session_and_others_stay(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        first = await open_session()
        await first.create("/kept", b"data")
        mine = await first.create("/mine", ephemeral=True)
        assert mine.ephemeral_owner == first.session_id
        await first.close()
        second = await open_session()
        assert second.session_id != first.session_id
        assert await second.exists("/mine") is None
        data, stat = await second.get("/kept")
        assert (data, stat.version) == (b"data", 0)

    play(story)


def test_transaction_numbers_go_on_over_sessions(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        first = await open_session()
        await first.create("/a")
        last = await first.create("/b")
        await first.delete("/b")
        await first.close()
        second = await open_session()
        assert (await second.create("/b")).czxid > last.czxid + 1

    play(story)


def test_a_closed_session_takes_nothing(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        await store.close()
        with pytest.raises(SessionLost):
            await store.get("/")
        with pytest.raises(SessionLost):
            await store.create("/a")

    play(story)


def test_no_node_and_no_multi_is_larger_than_the_limit(play: Play) -> None:
    async def story(open_session: OpenSession) -> None:
        store = await open_session()
        with pytest.raises(TooLarge, match="/big"):
            await store.create("/big", bytes(MAX_BYTES))
        half = bytes(MAX_BYTES // 2)
        with pytest.raises(TooLarge):
            await store.multi([Create("/a", half), Create("/b", half)])
        assert await store.exists("/a") is None
        await store.create("/a", half)

    play(story)
