"""The metadata store: a small versioned tree like ZooKeeper's, behind one interface.

Everything that a cluster must agree on is a node here: the live brokers, the controller, the topics and the leaders of
their partitions. The cluster room is the only caller. There are several implementations (`cluster/embedded.py`,
`cluster/zookeeper.py`, the simulator's); all of them pass the same contract suite and are interchangeable.

Guarantees of every implementation:

- A node has data and a version that starts at 0 and rises by one with every `set`. Writes name the version they
  expect (`ANY_VERSION` to accept any), so two writers never overwrite each other unnoticed.
- `multi` does all of its operations or none. Operations of one session take effect in the order in which they were
  called, even if the caller does not wait in between; reads see only durable writes.
- An ephemeral node is deleted when the session that created it ends.
- A watch is one-shot and carries no data: it means "read again". `get` and `exists` watch a node's data and existence,
  `children` the set of its children. It is called on the event loop after the change can be read.
- No node and no multi is larger than MAX_BYTES.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

ANY_VERSION = -1
MAX_BYTES = 512 * 1024
_OPERATION_BYTES = 64  # upper bound for what an operation takes besides its path and data

Watch = Callable[[str], None]


class StoreError(Exception):
    """An operation had no effect (with SessionLost and ConnectionLost this is unknown)."""

    def __init__(self, path: str, message: str = "") -> None:
        super().__init__(message or f"{type(self).__name__}: {path}")
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of a node to be created, does not exist."""


class NodeExists(StoreError):
    """The node to be created already exists."""


class BadVersion(StoreError):
    """Somebody else wrote in between."""


class NotEmpty(StoreError):
    """A node with children cannot be deleted."""


class TooLarge(StoreError):
    """A node or multi above MAX_BYTES."""


class StoreFull(StoreError):
    """The store has no space for the write; nothing changed, and a later attempt may succeed."""


class ConnectionLost(StoreError):
    """The store became unreachable during this operation: it may have taken effect or not, the session may continue.

    A writer reads again and compares before it retries. Reads are retried by the store itself."""


class SessionLost(StoreError):
    """The session has ended: its ephemeral nodes are gone, and it is unknown whether the last write took effect."""


class SessionState(enum.Enum):
    """The state of this session. After LOST the store cannot be used any more: a new one is opened."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the store is unreachable; the session may already have ended
    LOST = "lost"


class Stat(Struct, frozen=True):
    version: int
    czxid: int  # the transaction that created the node
    mzxid: int  # the transaction that wrote it last
    ephemeral_owner: int  # the session that owns it; 0: persistent


class Create(Struct, frozen=True):
    path: str
    data: bytes = b""
    ephemeral: bool = False


class Set(Struct, frozen=True):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(Struct, frozen=True):
    path: str
    version: int = ANY_VERSION


class Check(Struct, frozen=True):
    path: str
    version: int


Operation = Create | Set | Delete | Check


class Store(Protocol):
    @property
    def session_id(self) -> int: ...

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """`listener` is called on the event loop whenever the state of the session changes."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]: ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None: ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names (not paths) of a node's children, sorted."""
        ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> Stat: ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """One result per operation: the Stat after a create or set, None for the others."""
        ...

    async def sync(self) -> None:
        """After this, reads see every write that was completed by anybody before the call."""
        ...

    async def close(self) -> None:
        """End the session."""
        ...


class SingleWrites(ABC):
    """For stores in which a write of one node is a multi of one."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> Stat:
        return await self._written(Create(path, data, ephemeral))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._written(Set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def _written(self, operation: Create | Set) -> Stat:
        (written,) = await self.multi([operation])
        assert written is not None
        return written


def size_of(operation: Operation) -> int:
    """What an operation counts against MAX_BYTES."""
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(operation.path) + len(data) + _OPERATION_BYTES


def check_size(operations: Sequence[Operation]) -> None:
    total = sum(map(size_of, operations))
    if total > MAX_BYTES:
        largest = max(operations, key=size_of).path
        raise TooLarge(largest, f"{total} bytes in one write around {largest}; at most {MAX_BYTES} are allowed")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
