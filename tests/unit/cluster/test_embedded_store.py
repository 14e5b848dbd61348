"""What is particular to the SQLite home of the metadata tree: its file."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from headrace.cluster.embedded import EmbeddedStore
from headrace.cluster.store import StoreFull
from headrace.model.failure import Failure
from headrace.world.disk import RealDisk


async def opened(path: Path) -> EmbeddedStore:
    store = EmbeddedStore(RealDisk(1), path)
    await store.open()
    return store


def test_what_was_acknowledged_is_there_without_a_clean_close(tmp_path: Path) -> None:
    async def story() -> None:
        first = await opened(tmp_path / "m.db")
        await first.create("/a", b"1")
        await first.create("/mine", ephemeral=True)
        second = await opened(tmp_path / "m.db")  # as after kill -9: the first was never closed
        assert (await second.get("/a"))[0] == b"1"
        assert await second.exists("/mine") is None
        await second.close()

    asyncio.run(story())


def test_a_file_of_another_schema_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.db"

    async def make() -> None:
        await (await opened(path)).close()

    asyncio.run(make())
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(Failure, match=r"m\.db has format 99, this headrace knows format 1"):
        asyncio.run(opened(path))


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs(x)")
    with pytest.raises(Failure, match="another program"):
        asyncio.run(opened(path))


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.write_bytes(b"not a database at all" * 500)
    with pytest.raises(Failure, match=r"cannot read the metadata in .*m\.db"):
        asyncio.run(opened(path))


def test_the_file_is_nobody_elses(tmp_path: Path) -> None:
    async def story() -> None:
        store = await opened(tmp_path / "m.db")
        await store.create("/a")
        for path in tmp_path.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        await store.close()

    asyncio.run(story())


def test_a_full_disk_refuses_the_write_and_keeps_everything_else(tmp_path: Path) -> None:
    async def story() -> None:
        store = await opened(tmp_path / "m.db")
        await store.create("/a", b"1")
        assert store._database is not None
        (pages,) = store._database.execute("PRAGMA page_count").fetchone()
        store._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreFull, match="free some disk space"):
            await store.create("/b", bytes(100_000))
        assert await store.exists("/b") is None
        store._database.execute("PRAGMA max_page_count = 1000000")
        await store.create("/b", bytes(100_000))
        await store.close()
        again = await opened(tmp_path / "m.db")
        assert await again.children("/") == ["a", "b"]
        await again.close()

    asyncio.run(story())
