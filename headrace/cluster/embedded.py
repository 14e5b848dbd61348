"""The metadata store of a single broker: the tree in one SQLite file, without another process.

Layout of the file (schema 1; `application_id` identifies the application, `user_version` the schema):

    nodes(path PRIMARY KEY, data, version, czxid, mzxid, owner)    one row per node; owner 0: persistent
    meta(key PRIMARY KEY, value)                                   'zxid': the last transaction number ever used

Reads are served from memory; the tree of ten thousand partitions takes a few megabytes. A write is checked against the
tree on the event loop. Then all pending writes are committed in one SQLite transaction off the loop. Only when that is
durable (WAL, synchronous=FULL) do readers, watchers and callers see it. So creating a hundred topics at once costs a
few fsyncs, and writes take effect in the order of the calls.

The broker holds the lock of its data folder, so no other process uses the file: ephemeral nodes found at open belong to
sessions that have ended, and are removed. Transaction numbers never repeat, even across restarts; the id of a session
is the number of the transaction that opened it.

Beside it lies `NAME.reserve`, of zeros: room on the disk that is given up when a start finds none, so that a broker on
a full disk can serve its readers. The next start with enough room takes it again.

This is the only module outside `world/` that opens a file: SQLite opens it itself, with its own locking and recovery,
and cannot be given an open file.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.cluster.store import (
    Operation,
    SessionLost,
    SessionState,
    SingleWrites,
    Stat,
    StoreError,
    StoreFull,
    Watch,
    check_size,
)
from headrace.cluster.tree import Edit, Node, Tree, Watches
from headrace.model.failure import Failure, other_version
from headrace.world.disk import Disk

logger = logging.getLogger(__name__)

SCHEMA = 1
_APPLICATION_ID = 0x68656164  # "head"
RESERVE_SUFFIX = ".reserve"
_RESERVE_BYTES = 256 << 10
_PLENTY = 8  # that many times the reserve must be free to take it
_ROOM_TO_OPEN_BYTES = 64 << 10  # for SQLite's own two files beside the database
_CREATE = """
BEGIN;
CREATE TABLE nodes(path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL,
                   czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, owner INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('zxid', 0);
PRAGMA application_id = {application_id};
PRAGMA user_version = {schema};
COMMIT;
"""

_Results = list[Stat | None]
_Waiting = tuple[Sequence[Operation], "asyncio.Future[_Results]"]


class EmbeddedStore(SingleWrites):
    """`open` first, `close` last; see `cluster/store.py` for everything between."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._durable = Tree()
        self._next = Tree()
        self._watches = Watches()
        self._waiting: list[_Waiting] = []
        self._committer: asyncio.Task[None] | None = None
        self._database: sqlite3.Connection | None = None
        self._zxid = 0
        self._session_id = 0

    @property
    def session_id(self) -> int:
        return self._session_id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """The listener is never called: this session lives as long as the process."""

    async def open(self) -> None:
        """Read or create the file. Raises Failure if it is not a headrace file or has another schema."""
        try:
            nodes = await self._disk.off_loop(self._open_with_reserve)
        except sqlite3.Error as error:
            if self._lacks_room(error):
                raise Failure(no_room(self._path)) from error
            raise Failure(
                f"cannot read the metadata in {self._path}: {error}; if the file is damaged, restore the data folder"
            ) from error
        for path, node in nodes:
            self._durable.put(path, node)
            self._next.put(path, node)

    def _lacks_room(self, error: sqlite3.Error) -> bool:
        """SQLite needs room even to read; where it has none for a file of its own, it tells of an error of the disk."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return code == sqlite3.SQLITE_FULL or (
            code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
            and self._disk.free_bytes(self._path.parent) < _ROOM_TO_OPEN_BYTES
        )

    def _open_with_reserve(self) -> list[tuple[str, Node]]:
        """On a full disk the start needs a little room before anybody can read: what the reserve takes up."""
        reserve = self._path.with_name(self._path.name + RESERVE_SUFFIX)
        try:
            nodes = self._open()
        except sqlite3.Error as error:
            if not self._lacks_room(error) or not self._disk.exists(reserve):
                raise
            logger.warning("the disk of %s is full: the metadata use their reserve; free some space", self._path)
            self._disk.remove(reserve)
            return self._open()
        if not self._disk.exists(reserve):
            self._take_reserve(reserve)
        return nodes

    def _take_reserve(self, reserve: Path) -> None:
        if self._disk.free_bytes(reserve.parent) < _PLENTY * _RESERVE_BYTES:
            return
        file = self._disk.open(reserve, create=True)
        try:
            file.append((bytes(_RESERVE_BYTES),))
        except OSError:
            self._disk.remove(reserve)
        finally:
            file.close()

    def _open(self) -> list[tuple[str, Node]]:
        fresh = not self._disk.exists(self._path)
        if fresh:
            self._disk.open(self._path, create=True).close()  # with our permissions rather than SQLite's
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(database)
            (self._zxid,) = database.execute("SELECT value FROM meta WHERE key = 'zxid'").fetchone()
            self._zxid += 1
            self._session_id = self._zxid
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM nodes WHERE owner != 0")
            database.execute("UPDATE meta SET value = ? WHERE key = 'zxid'", (self._zxid,))
            database.execute("COMMIT")
            rows = database.execute("SELECT path, data, version, czxid, mzxid, owner FROM nodes").fetchall()
        except BaseException:
            database.close()
            raise
        if fresh:
            self._disk.sync_dir(self._path.parent)
        self._database = database
        return [(path, Node(data, Stat(*stat))) for path, data, *stat in rows]

    def _prepare(self, database: sqlite3.Connection) -> None:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (schema,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != _APPLICATION_ID:
            raise Failure(f"{self._path} is a database of another program; choose another data folder")
        if tables and schema != SCHEMA:
            raise other_version(self._path, schema, SCHEMA)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        if not tables:
            database.executescript(_CREATE.format(application_id=_APPLICATION_ID, schema=SCHEMA))

    async def close(self) -> None:
        """Complete all pending writes, then end the session."""
        if self._committer is not None:
            await self._committer
        database, self._database = self._database, None
        if database is not None:
            await self._disk.off_loop(database.close)

    # --- reading ---------------------------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        self._check_session(path)
        node = self._durable.node(path)
        self._watches.on_data(path, watch)
        return node.data, node.stat

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._check_session(path)
        self._watches.on_data(path, watch)
        node = self._durable.find(path)
        return None if node is None else node.stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._check_session(path)
        names = self._durable.children(path)
        self._watches.on_children(path, watch)
        return names

    async def sync(self) -> None:
        """Nothing to do: reads see every finished write."""
        self._check_session("/")

    # --- writing ---------------------------------------------------------------------------------------------------

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        check_size(operations)
        self._check_session(operations[0].path if operations else "/")
        done: asyncio.Future[_Results] = asyncio.get_running_loop().create_future()
        self._waiting.append((operations, done))
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        return await done

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._commit(batch)
        finally:
            self._committer = None

    async def _commit(self, batch: list[_Waiting]) -> None:
        edits: list[Edit] = []
        accepted: list[tuple[asyncio.Future[_Results], _Results]] = []
        for operations, done in batch:
            try:
                self._check_session(str(self._path))
                more, results = self._next.apply(operations, self._zxid + 1, self._session_id)
            except StoreError as error:
                _fail(done, error)
            else:
                self._zxid += 1
                edits += more
                accepted.append((done, results))
        if edits:
            try:
                await self._disk.off_loop(self._write, edits, self._zxid)
            except sqlite3.Error as error:
                self._next.undo(edits)
                problem = self._problem(error)
                for done, _ in accepted:
                    _fail(done, problem)
                return
        for edit in edits:
            self._durable.put(edit.path, edit.after)
        for watch, path in self._watches.fired_by(edits):
            asyncio.get_running_loop().call_soon(watch, path)
        for done, results in accepted:
            if not done.done():
                done.set_result(results)

    def _write(self, edits: list[Edit], zxid: int) -> None:
        database = self._database
        assert database is not None
        last = {edit.path: edit.after for edit in edits}
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(
                "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (path, node.data, node.stat.version, node.stat.czxid, node.stat.mzxid, node.stat.ephemeral_owner)
                    for path, node in last.items()
                    if node is not None
                ],
            )
            database.executemany("DELETE FROM nodes WHERE path = ?", [(p,) for p, node in last.items() if node is None])
            database.execute("UPDATE meta SET value = ? WHERE key = 'zxid'", (zxid,))
            database.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):  # SQLite rolls back by itself after some errors
                database.execute("ROLLBACK")
            raise

    def _problem(self, error: sqlite3.Error) -> StoreError:
        """A full disk can recover. After any other error the state on disk is unknown, so the session ends."""
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            return StoreFull(str(self._path), no_room(self._path))
        database, self._database = self._database, None
        if database is not None:
            with suppress(sqlite3.Error):
                database.close()
        return SessionLost(str(self._path), f"cannot write metadata to {self._path}: {error}")

    def _check_session(self, path: str) -> None:
        if self._database is None:
            raise SessionLost(path, f"the metadata store {self._path} is closed")


def no_room(path: Path) -> str:
    return f"no room for metadata in {path}: free some disk space"


def _fail(done: asyncio.Future[_Results], error: StoreError) -> None:
    if not done.done():
        done.set_exception(error)
