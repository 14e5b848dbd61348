"""The metadata store of a cluster: the tree in a real ZooKeeper. Only this file and `kazoo_thread.py` use kazoo.

kazoo talks to the server on its own thread. No code of headrace runs there. Everything that arrives is handed to the
event loop in order (`kazoo_thread.Mail`). Requests are sent in the order of the calls, many at a time, without waiting
for each other.

What this module adds to ZooKeeper and kazoo:

- A request that was in flight when the connection broke may or may not have taken effect. A read is repeated as soon as
  the connection is back. A write fails with ConnectionLost, and its caller reads before it writes again.
- When a session ends, kazoo silently opens another one and sends requests there that belonged to the first. Here a
  store is exactly one session: at the first sign of its end, all pending and later calls fail with SessionLost. The
  owner then closes the store, and with it any session that kazoo may have opened.
- kazoo calls every watch when the connection breaks. The contract allows this ("read again"), so it is passed on.
- The response to a multi does not contain the transaction number of the created nodes. All nodes of a multi have the
  same number, so one read of a created node, sent directly after the multi, returns it.

Opening a session waits without a time limit until a server can be reached; meanwhile this is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from msgspec import Struct

from headrace.cluster.kazoo_thread import Mail, OneThread
from headrace.cluster.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionLost,
    SessionState,
    Set,
    Stat,
    StoreError,
    Watch,
    check_size,
)
from headrace.model.failure import Failure
from headrace.world.clock import Clock

logger = logging.getLogger(__name__)

_SAY_EVERY_S = 5.0  # how often it is logged that ZooKeeper cannot be reached
_ERRORS: dict[type[Exception], type[StoreError]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.SessionExpiredError: SessionLost,
}
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class _OnLoop(Struct, frozen=True):
    """A watch as kazoo calls it, on its own thread. Two of the same watch are equal, so kazoo keeps one."""

    mail: Mail
    watch: Watch
    path: str

    def __call__(self, event: object) -> None:
        self.mail.put(self.watch, self.path)


class ZooKeeperStore:
    """`open` first, `close` last; see `cluster/store.py` for everything between."""

    def __init__(self, hosts: str, session_timeout_s: float, clock: Clock) -> None:
        """`hosts` in the format of ZooKeeper's own tools: host:port,host:port/folder."""
        self._hosts = hosts
        self._clock = clock
        self._session_timeout_s = session_timeout_s
        self._client: Any = None
        self._session_id = 0
        self._over = False
        self._connected = asyncio.Event()
        self._asked: set[asyncio.Future[Any]] = set()
        self._listeners: list[Callable[[SessionState], None]] = []

    @property
    def session_id(self) -> int:
        return self._session_id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def open(self) -> None:
        """Returns when the session is open. Failure if `hosts` cannot be parsed."""
        self._mail = mail = Mail(asyncio.get_running_loop())
        quiet = logging.getLogger("kazoo")
        quiet.setLevel(logging.CRITICAL)  # it logs each attempt to connect; we log one line now and then
        forever = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0)
        servers, _, folder = self._hosts.partition("/")
        try:
            client = KazooClient(
                servers, self._session_timeout_s, handler=OneThread(), connection_retry=forever, logger=quiet
            )
        except (ValueError, TypeError) as error:
            raise Failure(f"{self._hosts!r} names no ZooKeeper: {error}; write host:port,host:port/folder") from None
        client.add_listener(lambda state: mail.put(self._on_state, _STATES[state]))
        self._client = client
        client.start_async()
        saying = asyncio.ensure_future(self._say_that_we_wait())
        try:
            await self._connected.wait()
            await self._enter(f"/{folder}".rstrip("/"))
        except BaseException:
            await self.close()
            raise
        finally:
            saying.cancel()

    async def close(self) -> None:
        """End the session. If no server can be reached, it ends there by its timeout."""
        self._end()
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(_stop, client)

    async def _say_that_we_wait(self) -> None:
        while True:
            await self._clock.sleep(_SAY_EVERY_S)
            logger.warning("ZooKeeper at %s cannot be reached; waiting for it", self._hosts)

    async def _enter(self, folder: str) -> None:
        """Create the folder that `hosts` may name, and use it as the root from now on."""
        while folder:
            try:
                await self._ask(folder, lambda client: client.ensure_path_async(folder))
            except ConnectionLost:
                await self._connected.wait()
            else:
                self._client.chroot = folder
                return

    # --- the session ------------------------------------------------------------------------------------------------

    def _on_state(self, state: SessionState) -> None:
        if self._over:
            return
        if state is SessionState.CONNECTED:
            self._session_id = self._client.client_id[0]
            self._connected.set()
        elif state is SessionState.SUSPENDED:
            self._connected.clear()
        else:
            self._end()
        for listener in list(self._listeners):
            listener(state)

    def _end(self) -> None:
        self._over = True
        self._connected.set()  # calls that wait for the connection then see that the session is gone
        for asked in list(self._asked):
            if not asked.done():
                asked.set_exception(self._gone("/"))

    def _gone(self, path: str) -> SessionLost:
        return SessionLost(path, f"the session with ZooKeeper at {self._hosts} is over")

    # --- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, path: str, call: Callable[[Any], Any]) -> asyncio.Future[Any]:
        """Sends the request immediately; returns kazoo's result, or raises StoreError."""
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._over:
            asked.set_exception(self._gone(path))
            return asked
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        mail = self._mail
        call(self._client).rawlink(lambda result: mail.put(_answer, path, asked, result))
        return asked

    async def _read(self, path: str, call: Callable[[Any], Any]) -> Any:
        while True:
            try:
                return await self._ask(path, call)
            except ConnectionLost:
                await self._connected.wait()

    # --- reading ----------------------------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        data, stat = await self._read(path, lambda client: client.get_async(path, self._on_loop(watch, path)))
        return data, _stat(stat)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._read(path, lambda client: client.exists_async(path, self._on_loop(watch, path)))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = await self._read(path, lambda client: client.get_children_async(path, self._on_loop(watch, path)))
        return sorted(names)

    async def sync(self) -> None:
        await self._read("/", lambda client: client.sync_async("/"))

    # --- writing ----------------------------------------------------------------------------------------------------

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> Stat:
        check_size([Create(path, data)])
        _, stat = await self._ask(
            path, lambda client: client.create_async(path, data, ephemeral=ephemeral, include_data=True)
        )
        return _stat(stat)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        check_size([Set(path, data)])
        return _stat(await self._ask(path, lambda client: client.set_async(path, data, version)))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._ask(path, lambda client: client.delete_async(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        check_size(operations)
        path = operations[0].path if operations else "/"
        written = self._ask(path, lambda client: _transaction(client, operations).commit_async())
        created = next((operation.path for operation in operations if isinstance(operation, Create)), None)
        looked = None if created is None else self._ask(created, lambda client: client.exists_async(created))
        try:
            results: list[Any] = await written
            _raise_first_error(operations, results)
        finally:
            number = 0 if looked is None else await _transaction_number(looked)
        return [
            self._stat_after(operation, result, number) for operation, result in zip(operations, results, strict=True)
        ]

    def _on_loop(self, watch: Watch | None, path: str) -> _OnLoop | None:
        return None if watch is None else _OnLoop(self._mail, watch, path)

    def _stat_after(self, operation: Operation, result: Any, number: int) -> Stat | None:
        if isinstance(operation, Create):
            return Stat(0, number, number, self._session_id if operation.ephemeral else 0)
        return _stat(result) if isinstance(operation, Set) else None


def _answer(path: str, asked: asyncio.Future[Any], result: Any) -> None:
    if asked.done():
        return
    error = result.exception
    if error is None:
        asked.set_result(result.get())
    else:
        asked.set_exception(_translated(path, error))


def _translated(path: str, error: Exception) -> StoreError:
    for known, ours in _ERRORS.items():
        if isinstance(error, known):
            return ours(path)
    return ConnectionLost(path, f"ZooKeeper did not answer ({type(error).__name__}) about {path}")


def _transaction(client: Any, operations: Sequence[Operation]) -> Any:
    transaction = client.transaction()
    for operation in operations:
        match operation:
            case Create(path, data, ephemeral):
                transaction.create(path, data, ephemeral=ephemeral)
            case Set(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, version)
            case Check(path, version):
                transaction.check(path, version)
    return transaction


def _raise_first_error(operations: Sequence[Operation], results: Sequence[Any]) -> None:
    """ZooKeeper marks operations before the failed one as rolled back, and those after it as not tried."""
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, Exception) and not isinstance(
            result, kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency
        ):
            raise _translated(operation.path, result)


async def _transaction_number(looked: asyncio.Future[Any]) -> int:
    """0 if unknown: the node was deleted, or the connection broke, right after it was created."""
    try:
        stat = await looked
    except StoreError:
        return 0
    return 0 if stat is None else int(stat.czxid)


def _stat(found: Any) -> Stat:
    return Stat(found.version, found.czxid, found.mzxid, found.ephemeralOwner)


def _stop(client: Any) -> None:
    client.stop()
    client.close()
