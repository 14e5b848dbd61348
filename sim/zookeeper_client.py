"""A client of the simulated ZooKeeper: a Store that can lose its connection like a real one.

Created by `SimZooKeeper.connect` (sim/zookeeper.py), whose docstring explains the possible failures. It runs in the
context in which it was created: when its broker is paused, so is the client, and the ensemble hears nothing from it.
Methods that run at the ensemble say so.

Invariant: messages keep their order in each direction; messages of an earlier connection never arrive.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.cluster.store import (
    ConnectionLost,
    Operation,
    SessionLost,
    SessionState,
    SingleWrites,
    Stat,
    StoreError,
    Watch,
    check_size,
)
from headrace.cluster.tree import Watches

if TYPE_CHECKING:
    from sim.zookeeper import Session, SimZooKeeper

T = TypeVar("T")
_SLOWEST_HOP_S = 0.002
_RECONNECT_S = 0.1
_Message = tuple[int, contextvars.Context, Callable[..., None], tuple[Any, ...]]  # its connection, where, what


class _Request:
    __slots__ = ("answer", "asked_again", "local", "path", "work")

    def __init__(self, path: str, work: Callable[[Session], Any], asked_again: bool, local: bool) -> None:
        self.path = path
        self.work = work
        self.asked_again = asked_again  # true for reads; a write whose response is lost has an unknown result
        self.local = local  # the session's server answers it without the others
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class SimStore(SingleWrites):
    """One client of the ensemble. Runs in the context in which it was created: when its broker is paused, so is the
    client, and the ensemble hears nothing from it."""

    def __init__(self, ensemble: SimZooKeeper, name: str) -> None:
        self.name = name
        self.losing_reply = False
        self._ensemble = ensemble
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._state: SessionState | None = None  # None: not open yet
        self._closed = False
        self._listeners: list[Callable[[SessionState], None]] = []
        self._connection = 0  # a counter; messages of an earlier connection are lost
        self._connected = False
        self._arrival_s = [0.0, 0.0]  # of the last message up, and down: none overtakes another
        self._on_the_way: tuple[deque[_Message], deque[_Message]] = (deque(), deque())
        self._held: list[_Message] = []
        self._heard_s = 0.0
        self._pending: deque[_Request] = deque()
        self._watching: dict[object, tuple[Watch, str]] = {}
        self._opened: asyncio.Future[None] = self._loop.create_future()

    # --- the store --------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session | None:
        """As the ensemble knows it; None before there is one."""
        return self._session

    @property
    def session_id(self) -> int:
        return -1 if self._session is None else self._session.id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def open(self) -> None:
        self._reconnect()
        await self._opened

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        def read(session: Session) -> tuple[bytes, Stat]:
            node = session.tree.node(path)
            session.watches.on_data(path, self._remote(watch, path))
            return node.data, node.stat

        return await self._ask(path, read, again=True, local=True)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def read(session: Session) -> Stat | None:
            session.watches.on_data(path, self._remote(watch, path))
            node = session.tree.find(path)
            return None if node is None else node.stat

        return await self._ask(path, read, again=True, local=True)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def read(session: Session) -> list[str]:
            names = session.tree.children(path)
            session.watches.on_children(path, self._remote(watch, path))
            return names

        return await self._ask(path, read, again=True, local=True)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        check_size(operations)
        path = operations[0].path if operations else "/"
        return await self._ask(path, lambda session: self._ensemble.write(session, operations), again=False)

    async def sync(self) -> None:
        await self._ask("/", lambda session: session.catch_up(), again=True)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._session is not None and self._connected:
            goodbye = self._loop.create_future()
            self._send_up(self._end, goodbye)
            self._loop.call_later(self._ensemble.session_timeout_s, _settle, goodbye)
            await goodbye
        for request in self._pending:
            _fail(request, SessionLost(request.path, f"the session of {self.name} is closed"))
        self._pending.clear()

    def _end(self, goodbye: asyncio.Future[None]) -> None:
        """At the ensemble."""
        assert self._session is not None
        if self._session.stranded:  # it ends by its timeout
            return
        self._ensemble.end(self._session)
        self._send(1, self._context, _settle, (goodbye,))

    # --- asking -----------------------------------------------------------------------------------------------------

    async def _ask(self, path: str, work: Callable[[Session], T], *, again: bool, local: bool = False) -> T:
        if self._closed or self._state is SessionState.LOST:
            raise SessionLost(path, f"the session of {self.name} is over")
        request = _Request(path, work, again, local)
        self._pending.append(request)
        if self._connected:
            self._send_up(self._serve, request)
        elif not again and self._ensemble.random.random() < 0.5:
            # Some clients keep requests until they are reconnected, some give up soon: callers must cope with both.
            self._loop.call_later(self._ensemble.random.uniform(0.01, 1.0), self._give_up, request)
        return await request.answer  # type: ignore[no-any-return]  # it is what work gives

    def _give_up(self, request: _Request) -> None:
        if not self._connected and request in self._pending:
            self._pending.remove(request)
            _fail(request, ConnectionLost(request.path, f"{self.name} cannot reach ZooKeeper"))

    def _serve(self, request: _Request) -> None:
        """At the ensemble."""
        session = self._session
        assert session is not None
        if session.stranded and (session.held_up or not request.local):
            session.held_up.append(partial(self._serve, request))
            return
        if not session.alive and not session.stranded:
            self._send_down(self._lost)
            return
        self._ensemble.hear(session)
        outcome: Any
        try:
            outcome = request.work(session)
        except StoreError as error:
            outcome = error
        if self.losing_reply and not request.asked_again:
            self.losing_reply = False
            self._loop.call_soon(self.disconnected, context=self._context)
            return
        self._send_down(self._answered, request, outcome)

    def _answered(self, request: _Request, outcome: Any) -> None:
        if request in self._pending:
            self._pending.remove(request)
        if isinstance(outcome, StoreError):
            _fail(request, outcome)
        elif not request.answer.done():
            request.answer.set_result(outcome)

    def _remote(self, watch: Watch | None, path: str) -> Watch | None:
        """What the ensemble calls instead of `watch`."""
        if watch is None:
            return None
        key = object()
        self._watching[key] = (watch, path)
        return lambda path: self._send_down(self._fired, key, path)

    def _fired(self, key: object, path: str) -> None:
        watch, _ = self._watching.pop(key, (None, ""))
        if watch is not None:
            watch(path)

    # --- the connection ---------------------------------------------------------------------------------------------

    def _reconnect(self) -> None:
        if self._closed or self._connected or self._state is SessionState.LOST:
            return
        if self._ensemble.reachable(self.name):
            self._connection += 1
            self._held.clear()
            self._send_up(self._welcome)
        self._loop.call_later(_RECONNECT_S * self._ensemble.random.uniform(0.5, 3), self._reconnect)

    def _welcome(self) -> None:
        """At the ensemble: a client is (back) here."""
        if self._ensemble.stranded(self.name):
            return
        if self._session is None:
            self._session = self._ensemble.begin(self)
        if not self._session.alive:
            self._send_down(self._lost)
            return
        self._ensemble.hear(self._session)
        self._send_down(self._is_connected)

    def _is_connected(self) -> None:
        if self._connected:
            return
        self._connected = True
        self._turn(SessionState.CONNECTED)
        if not self._opened.done():
            self._opened.set_result(None)
        missed, self._watching = list(self._watching.values()), {}
        for watch, path in missed:
            watch(path)
        for request in self._pending:
            self._send_up(self._serve, request)
        self._ping(self._connection)

    def _ping(self, connection: int) -> None:
        if self._closed or not self._connected or connection != self._connection:
            return
        timeout_s = self._ensemble.session_timeout_s
        if self._loop.time() - self._heard_s > timeout_s * 2 / 3:
            self.disconnected()
            return
        self._send_up(self._pong)
        self._loop.call_later(timeout_s / 6, self._ping, connection)

    def _pong(self) -> None:
        """At the ensemble."""
        session = self._session
        assert session is not None
        if session.stranded and session.held_up:
            session.held_up.append(self._pong)
        elif session.alive or session.stranded:
            self._ensemble.hear(session)
            self._send_down(_nothing)
        else:
            self._send_down(self._lost)

    def disconnected(self) -> None:
        if not self._connected or self._closed:
            return
        self._connected = False
        self._connection += 1
        if self._session is not None:
            self._session.watches = Watches()  # they went with the connection, and are told of when there is another
            self._session.held_up.clear()
        self._turn(SessionState.SUSPENDED)
        for request in [request for request in self._pending if not request.asked_again]:
            self._pending.remove(request)
            _fail(request, ConnectionLost(request.path, f"{self.name} lost its connection to ZooKeeper"))
        self._loop.call_later(_RECONNECT_S, self._reconnect, context=self._context)

    def _lost(self) -> None:
        if self._state is SessionState.LOST:
            return
        self._connected = False
        for request in self._pending:
            _fail(request, SessionLost(request.path, f"the session of {self.name} has expired"))
        self._pending.clear()
        self._turn(SessionState.LOST)

    def _turn(self, state: SessionState) -> None:
        first, self._state = self._state is None, state
        if not first and not self._closed:
            for listener in self._listeners:
                listener(state)

    # --- messages ---------------------------------------------------------------------------------------------------

    def _send_up(self, work: Callable[..., None], *args: Any) -> None:
        self._send(0, self._ensemble.context, work, args)

    def _send_down(self, work: Callable[..., None], *args: Any) -> None:
        self._send(1, self._context, self._receive, (work, *args))

    def _send(self, way: int, context: contextvars.Context, work: Callable[..., None], args: tuple[Any, ...]) -> None:
        arrives_s = self._loop.time() + self._ensemble.random.uniform(0, _SLOWEST_HOP_S)
        self._arrival_s[way] = max(self._arrival_s[way], arrives_s)
        self._on_the_way[way].append((self._connection, context, work, args))
        self._loop.call_at(self._arrival_s[way], self._arrive_next, way, context=self._ensemble.context)

    def _arrive_next(self, way: int) -> None:
        self._arrive(self._on_the_way[way].popleft())

    def _arrive(self, message: _Message) -> None:
        connection, context, work, args = message
        if connection != self._connection:
            return
        if not self._ensemble.reachable(self.name):
            self._held.append(message)
        else:
            self._loop.call_soon(work, *args, context=context)

    def deliver_held(self) -> None:
        """The network retransmits what did not get through, if the connection still exists."""
        if self._ensemble.reachable(self.name):
            held, self._held = self._held, []
            for message in held:
                self._arrive(message)

    def _receive(self, work: Callable[..., None], *args: Any) -> None:
        self._heard_s = self._loop.time()
        if not self._closed:
            work(*args)


def _nothing() -> None:
    """A message that only says that the ensemble is reachable."""


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(request: _Request, error: StoreError) -> None:
    if not request.answer.done():
        request.answer.set_exception(error)
        request.answer.exception()  # mark it as retrieved: the caller may be gone with its broker
