"""A ZooKeeper ensemble in memory: the versioned tree, sessions with timeouts, and all kinds of connection loss.

Passes the contract of the store (tests/contract/test_store_contract.py) like the real one; in a simulated cluster
`connect` opens a broker's store. It has these properties of the real ensemble, because brokers must cope with them:

- Every session reads the tree from its own server, which lags behind the others, so a read may be stale. A session sees
  its own writes, never goes back in time, and is up to date after `sync`.
- A watch arrives before that session can read the change, at most once, and carries no data ("read again"). After a
  lost connection, every pending watch is fired, because it is unknown what was missed.
- A session lives for its full timeout after the ensemble last heard from it. It may have ended although the client
  still believes in it; a client that cannot reach the ensemble does not know whether its session is alive until it is
  back.
- A client may be cut off together with its server. That server answers reads as before, from a tree that gets older; it
  passes on nothing, not even that it hears from the client, so the session ends without either knowing. A write or a
  `sync` waits there, and whatever the session asks after it.
- A write whose response is lost may or may not have taken effect: ConnectionLost. Reads are retried.

Faults on request, by the client's name: `cut`, `strand` and `mend`, `break_connection`, `lose_reply`; and `stop` and
`start` for the whole ensemble, whose sessions then get their full timeout again. All delays are drawn from the seed.
`expire` is for tests of what follows: it breaks the promise of the timeout, which leaders rely on (cluster/lease.py).

Invariant: one order of writes (`zxid`) for all. The client's side is in sim/zookeeper_client.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Sequence

from headrace.cluster.store import Delete, Operation, Stat, Store
from headrace.cluster.tree import Edit, Tree, Watches
from sim.zookeeper_client import SimStore

SESSION_TIMEOUT_S = 3.0
_LONGEST_LAG_S = 0.05


class Session:
    """One session as the ensemble knows it: the tree as its server shows it, and who watches there."""

    def __init__(self, session_id: int, client: SimStore, tree: Tree) -> None:
        self.id = session_id
        self.client = client
        self.tree = tree
        self.behind: deque[list[Edit]] = deque()  # writes that its server has not applied yet
        self.watches = Watches()
        self.ephemerals: set[str] = set()
        self.heard_s = 0.0
        self.alive = True
        self.stranded = False  # its server is cut off from the others
        self.held_up: deque[Callable[[], None]] = deque()  # what waits at that server, in order

    def catch_up(self, writes: int | None = None) -> None:
        if self.stranded:
            return
        for _ in range(len(self.behind) if writes is None else min(writes, len(self.behind))):
            edits = self.behind.popleft()
            for edit in edits:
                self.tree.put(edit.path, edit.after)
            for watch, path in self.watches.fired_by(edits):
                watch(path)


class SimZooKeeper:
    def __init__(self, seed: int = 0, session_timeout_s: float = SESSION_TIMEOUT_S) -> None:
        self.session_timeout_s = session_timeout_s
        self.random = random.Random(seed)
        self.context = contextvars.copy_context()  # the ensemble's own: it also runs while all brokers are paused
        self.running = True
        self.zxid = 0
        self._tree = Tree()
        self._sessions: dict[int, Session] = {}
        self._clients: dict[str, SimStore] = {}  # the newest of each name
        self._cut: set[str] = set()
        self._stranded: set[str] = set()
        self._auditors: list[Callable[[list[Edit]], None]] = []

    async def connect(self, name: str) -> Store:
        """A new session for the client of this name; waits while the ensemble is unreachable."""
        client = SimStore(self, name)
        self._clients[name] = client
        await client.open()
        return client

    # --- faults -----------------------------------------------------------------------------------------------------

    def reachable(self, name: str) -> bool:
        return self.running and name not in self._cut

    def cut(self, name: str) -> None:
        """Cuts the link between the ensemble and this client silently."""
        self._cut.add(name)

    def strand(self, name: str) -> None:
        """Cuts this client off from all servers but the one that it is connected to, and that one from the others."""
        self._stranded.add(name)
        if (session := self._session_of(name)) is not None:
            session.stranded = True

    def stranded(self, name: str) -> bool:
        """Whether this client can only reach a server that cannot open a session, or take one over."""
        return name in self._stranded

    def mend(self, name: str) -> None:
        self._cut.discard(name)
        self._stranded.discard(name)
        self._deliver_held()
        if (session := self._session_of(name)) is not None:
            session.stranded = False
            session.catch_up()
            while session.held_up:
                asyncio.get_running_loop().call_soon(session.held_up.popleft(), context=self.context)

    def _session_of(self, name: str) -> Session | None:
        """Of the newest client of this name; it may have ended."""
        return self._clients[name].session if name in self._clients else None

    def break_connection(self, name: str) -> None:
        """Resets the client's connection: the client notices immediately, and reconnects."""
        if name in self._clients:
            self._clients[name].disconnected()

    def lose_reply(self, name: str) -> None:
        """The next write takes effect, and its response is lost with the connection."""
        if name in self._clients:
            self._clients[name].losing_reply = True

    def expire(self, name: str) -> None:
        """The ensemble ends the session at once, although it heard from the client a moment ago."""
        if (session := self._session_of(name)) is not None:
            self.end(session)

    def stop(self) -> None:
        """No majority of servers: nothing is answered, and no session ends until `start`."""
        self.running = False

    def start(self) -> None:
        self.running = True
        now = asyncio.get_running_loop().time()
        for session in self._sessions.values():
            session.heard_s = now
            self._expire_later(session)
        self._deliver_held()

    def _deliver_held(self) -> None:
        for client in self._clients.values():
            client.deliver_held()

    # --- looking from above -----------------------------------------------------------------------------------------

    def on_write(self, auditor: Callable[[list[Edit]], None]) -> None:
        """`auditor` sees every change, in the one order in which they happen."""
        self._auditors.append(auditor)

    def peek(self, path: str) -> tuple[bytes, Stat] | None:
        """What is written at this path, for auditors."""
        node = self._tree.find(path)
        return None if node is None else (node.data, node.stat)

    def names_below(self, path: str) -> list[str]:
        return self._tree.children(path) if self._tree.find(path) is not None else []

    # --- what clients ask for, called in the ensemble's context -----------------------------------------------------

    def begin(self, client: SimStore) -> Session:
        self.zxid += 1
        session = Session(self.zxid, client, self._tree.copy())
        session.heard_s = asyncio.get_running_loop().time()
        self._sessions[session.id] = session
        self._expire_later(session)
        return session

    def hear(self, session: Session) -> None:
        if not session.stranded:
            session.heard_s = asyncio.get_running_loop().time()

    def write(self, session: Session, operations: Sequence[Operation]) -> list[Stat | None]:
        try:
            edits, results = self._tree.apply(operations, self.zxid + 1, session.id)
        finally:
            session.catch_up()
        self.zxid += 1
        self._spread(edits)
        session.catch_up()
        return results

    def end(self, session: Session) -> None:
        if not session.alive:
            return
        session.alive = False
        del self._sessions[session.id]
        self.zxid += 1
        gone = [Delete(path) for path in sorted(session.ephemerals, reverse=True)]
        edits, _ = self._tree.apply(gone, self.zxid, session.id)
        self._spread(edits)

    def _spread(self, edits: list[Edit]) -> None:
        for auditor in self._auditors:
            auditor(edits)
        for edit in edits:
            if edit.after is not None and edit.before is None and edit.after.stat.ephemeral_owner in self._sessions:
                self._sessions[edit.after.stat.ephemeral_owner].ephemerals.add(edit.path)
            elif edit.after is None and edit.before is not None:
                owner = self._sessions.get(edit.before.stat.ephemeral_owner)
                if owner is not None:
                    owner.ephemerals.discard(edit.path)
        loop = asyncio.get_running_loop()
        for session in self._sessions.values():
            session.behind.append(edits)
            loop.call_later(self.random.uniform(0, _LONGEST_LAG_S), session.catch_up, 1, context=self.context)

    def _expire_later(self, session: Session) -> None:
        due_s = session.heard_s + self.session_timeout_s
        asyncio.get_running_loop().call_at(due_s, self._expire_if_silent, session, context=self.context)

    def _expire_if_silent(self, session: Session) -> None:
        if not session.alive or not self.running:
            return
        if asyncio.get_running_loop().time() >= session.heard_s + self.session_timeout_s:  # as the timer reckons
            self.end(session)
        else:
            self._expire_later(session)
