"""The successive sessions of one broker, behind one Store.

A store is one session and ends with it (`cluster/store.py`). A broker outlives its sessions: when it loses one, it
opens the next, registers again and continues. The rooms of a cluster share this object, so they need not be told which
session is current. Between two sessions every call fails with SessionLost, as it does in a store that has ended.

`server/standing.py` decides when to open the next session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from headrace.cluster.store import ANY_VERSION, Operation, SessionState, Stat, Store, Watch

OpenStore = Callable[[], Awaitable[Store]]


class Sessions:
    """`begin` before anything else, and again after each loss; `close` at the end."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._listeners: list[Callable[[SessionState], None]] = []

    async def begin(self) -> None:
        """Close the last session and open the next one; waits without a time limit."""
        await self.close()
        store = await self._open_store()
        self._store = store
        store.on_session(lambda state: self._tell(store, state))
        self._tell(store, SessionState.CONNECTED)

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    def _tell(self, store: Store, state: SessionState) -> None:
        if store is self._store:
            for listener in list(self._listeners):
                listener(state)

    @property
    def current(self) -> Store:
        """The store of this session alone."""
        assert self._store is not None, "no session was begun"
        return self._store

    # --- what a store can do ----------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self.current.session_id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """`listener` is called for this session and all later ones."""
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return await self.current.get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self.current.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self.current.children(path, watch)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> Stat:
        return await self.current.create(path, data, ephemeral=ephemeral)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self.current.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.current.delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        return await self.current.multi(operations)

    async def sync(self) -> None:
        await self.current.sync()
