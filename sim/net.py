"""A network whose links can be cut, in one or both directions, and slowed, and whose connections can be broken.

`SimNetwork` is the network between hosts; each host has its own `Net` (`network.host("broker-1")`), and its name is its
address. A host runs one process: when a process dies, its connections are closed, as its kernel would do; when a host
loses power, its peers learn of it only when it is back. Data on a cut link is not lost: it arrives when the link is
restored, if the connection still exists, as with TCP. Passes the same contract as the real network
(tests/contract/test_net_contract.py).

Invariant: the bytes of a connection arrive in order, each once, or the connection ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import itertools
import os
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from headrace.world.net import Door, Net

_FIRST_PORT = 40_000
_SLOWEST_HOP_S = 0.001
_CONNECT_TIMEOUT_S = 20.0

Address = tuple[str, int]
Protocol = Callable[[], asyncio.BaseProtocol]


class SimNetwork:
    def __init__(self, seed: int = 0) -> None:
        self.doors: dict[Address, SimDoor] = {}
        self.connections: set[_Connection] = set()
        self.context = contextvars.copy_context()  # the network's own: it works while processes are paused
        self._ports = itertools.count(_FIRST_PORT)
        self._random = random.Random(seed)
        self._cut: set[tuple[str, str]] = set()
        self._delay_s: dict[tuple[str, str], float] = {}
        self._bytes_per_s: dict[tuple[str, str], float] = {}
        self._waiting: list[asyncio.Future[None]] = []  # connects that wait for a link

    def host(self, name: str) -> Net:
        return _Host(self, name)

    # --- faults -----------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Nothing from `source` reaches `target` any more, nor in the other direction unless `one_way`."""
        self._cut.add((source, target))
        if not one_way:
            self._cut.add((target, source))

    def mend(self) -> None:
        """All links are up again, at full speed."""
        self._cut.clear()
        self._delay_s.clear()
        self._bytes_per_s.clear()
        for connection in self.ordered():
            connection.go_on()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def slow(self, source: str, target: str, delay_s: float) -> None:
        """Data between the two takes about this long."""
        self._delay_s[source, target] = self._delay_s[target, source] = delay_s

    def narrow(self, source: str, target: str, bytes_per_s: float) -> None:
        """Limits the rate of each connection from the one to the other."""
        self._bytes_per_s[source, target] = bytes_per_s

    def reset(self, one: str, other: str) -> None:
        """Breaks the connections between the two; both sides are notified."""
        for connection in self.ordered():
            if {end.host for end in connection.ends} == {one, other}:
                connection.fail(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def process_died(self, host: str) -> None:
        """The kernel closes the process's connections and listening sockets; peers are notified if the links are up."""
        self._forget_doors(host)
        for connection in self.ordered():
            for end in connection.ends:
                if end.host == host and not end.gone:
                    end.vanish(tell=True)

    def power_lost(self, host: str) -> None:
        """Peers are not notified until `power_back`."""
        self._forget_doors(host)
        for connection in self.ordered():
            for end in connection.ends:
                if end.host == host:
                    end.vanish(tell=False)

    def power_back(self, host: str) -> None:
        for connection in self.ordered():
            if any(end.host == host for end in connection.ends):
                connection.fail(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _forget_doors(self, host: str) -> None:
        for address in [address for address in self.doors if address[0] == host]:
            del self.doors[address]

    # --- the wire ---------------------------------------------------------------------------------------------------

    def ordered(self) -> list[_Connection]:
        """Open connections in the order of their creation: the order of a set would depend on memory addresses."""
        return sorted(self.connections, key=lambda connection: connection.number)

    def passes(self, source: str, target: str) -> bool:
        return (source, target) not in self._cut

    def hop_s(self, source: str, target: str) -> float:
        slow_s = self._delay_s.get((source, target), 0.0)
        return self._random.uniform(0, _SLOWEST_HOP_S) + slow_s * self._random.uniform(0.5, 1.5)

    def load_s(self, source: str, target: str, size: int) -> float:
        """How long a connection is busy with this many bytes."""
        rate = self._bytes_per_s.get((source, target))
        return 0.0 if rate is None else size / rate

    def free_port(self) -> int:
        return next(self._ports)

    async def travel(self, source: str, target: str) -> None:
        """There and back; waits while a link is cut. TimeoutError after a while."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _CONNECT_TIMEOUT_S
        await asyncio.sleep(self.hop_s(source, target) + self.hop_s(target, source))
        while not (self.passes(source, target) and self.passes(target, source)):
            mended = loop.create_future()
            self._waiting.append(mended)
            timer = loop.call_at(deadline_s, _set, mended)
            await mended
            timer.cancel()
            if loop.time() >= deadline_s:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


class _Host:
    """The network as one host sees it."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self._network = network
        self._name = name

    async def bind(self, host: str, port: int, protocol: Protocol) -> Door:
        address = (self._name, port or self._network.free_port())
        if address in self._network.doors:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        door = SimDoor(self._network, address, protocol)
        self._network.doors[address] = door
        return door

    async def connect(self, host: str, port: int, protocol: Protocol) -> None:
        network = self._network
        await network.travel(self._name, host)
        door = network.doors.get((host, port))
        if door is None or not door.is_open:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        here = (self._name, network.free_port())
        connection = _Connection(network, here, door.address)
        near, far = connection.ends
        far.serve(door.protocol, door.context)
        near.live(protocol(), contextvars.copy_context())

    async def addresses(self, host: str) -> list[str]:
        return [host]


class SimDoor:
    def __init__(self, network: SimNetwork, address: Address, protocol: Protocol) -> None:
        self.address = address
        self.protocol = protocol
        self.context = contextvars.copy_context()
        self.is_open = False
        self._network = network

    async def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        if self._network.doors.get(self.address) is self:
            del self._network.doors[self.address]


class _Connection:
    """Two ends; what one writes, the other reads."""

    _numbers = itertools.count()

    def __init__(self, network: SimNetwork, near: Address, far: Address) -> None:
        self.number = next(self._numbers)
        self.ends = (SimTransport(network, self, near, far), SimTransport(network, self, far, near))
        self.ends[0].peer, self.ends[1].peer = self.ends[1], self.ends[0]
        self._network = network
        network.connections.add(self)

    def fail(self, error: OSError) -> None:
        for end in self.ends:
            end.lose(error)

    def go_on(self) -> None:
        for end in self.ends:
            end.deliver()

    def end_gone(self) -> None:
        if all(end.gone for end in self.ends):
            self._network.connections.discard(self)


class SimTransport(asyncio.Transport):
    """One end of a connection. `_inbox` is what the other end wrote and this one has not read; None in it: the end."""

    def __init__(self, network: SimNetwork, connection: _Connection, here: Address, there: Address) -> None:
        super().__init__({"sockname": here, "peername": there})
        self.host = here[0]
        self.peer: SimTransport = self
        self.gone = False  # this end is closed
        self._network = network
        self._connection = connection
        self._protocol: asyncio.BaseProtocol | None = None
        self._context = network.context
        self._closing = False
        self._reading = True
        self._inbox: deque[tuple[float, bytes | None]] = deque()
        self._arrival_s = 0.0
        self._arrived = b""  # not yet read here
        self._ended = False  # nothing comes after that
        self._waiting_bytes = 0  # written here, not yet read there
        self._high = 64 * 1024
        self._peer_paused = False

    # --- a life -----------------------------------------------------------------------------------------------------

    def live(self, protocol: asyncio.BaseProtocol, context: contextvars.Context) -> None:
        self._protocol, self._context = protocol, context
        protocol.connection_made(self)

    def serve(self, factory: Protocol, context: contextvars.Context) -> None:
        """Accepts the connection as soon as the listening process runs."""
        self._context = context.copy()
        asyncio.get_running_loop().call_soon(lambda: self.live(factory(), self._context), context=self._context)

    def lose(self, error: OSError | None) -> None:
        if not self.gone:
            self.vanish(tell=False)
            asyncio.get_running_loop().call_soon(self._tell_lost, error, context=self._context)

    def _tell_lost(self, error: OSError | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def vanish(self, *, tell: bool) -> None:
        """Closes this end; with `tell`, the other end is notified."""
        if tell:
            self._send(None)
        self.gone = self._closing = True
        self._inbox.clear()
        self._connection.end_gone()

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._closing or not len(data):
            return
        self._waiting_bytes += len(data)
        self._send(bytes(data))
        if self._waiting_bytes > self._high and not self._peer_paused:
            self._peer_paused = True
            self._flow().pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def _send(self, data: bytes | None) -> None:
        loop = asyncio.get_running_loop()
        peer = self.peer
        arrives_s = loop.time() + self._network.hop_s(self.host, peer.host)
        peer._arrival_s = max(peer._arrival_s, arrives_s) + self._network.load_s(self.host, peer.host, len(data or b""))
        peer._inbox.append((peer._arrival_s, data))
        loop.call_at(peer._arrival_s, peer.deliver, context=self._network.context)

    def was_read(self, size: int) -> None:
        self._waiting_bytes -= size
        if self._peer_paused and self._waiting_bytes <= self._high // 4 and not self.gone:
            self._peer_paused = False
            asyncio.get_running_loop().call_soon(self._flow().resume_writing, context=self._context)

    def _flow(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    # --- reading ----------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Deliver what has arrived, if the link is up: all of it at once, as a socket does."""
        loop = asyncio.get_running_loop()
        if self.gone:
            if self._network.passes(self.peer.host, self.host) and self._network.passes(self.host, self.peer.host):
                self._inbox.clear()
            return
        if not self._reading or not self._network.passes(self.peer.host, self.host):
            return
        due: list[bytes] = []
        while self._inbox and not self._ended and self._inbox[0][0] <= loop.time():
            _, data = self._inbox.popleft()
            if data is None:
                self._ended = True
            else:
                due.append(data)
        self._arrived += b"".join(due)
        if self._arrived or self._ended:
            loop.call_soon(self._hear, context=self._context)

    def _hear(self) -> None:
        """Data that the protocol does not read now, because it has paused reading, is kept."""
        data, self._arrived = self._arrived, b""
        rest = memoryview(data)
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            while rest and self._reading and not self._closing:
                buffer = memoryview(cast("bytearray", self._protocol.get_buffer(len(rest))))
                part = min(len(rest), len(buffer))
                buffer[:part] = rest[:part]
                self._protocol.buffer_updated(part)
                rest = rest[part:]
            if rest and not self._closing:
                self._arrived = bytes(rest)
        elif data and not self._closing:
            cast("asyncio.Protocol", self._protocol).data_received(data)
        self.peer.was_read(len(data) - len(self._arrived))
        if self._ended and not self._arrived:
            self.lose(None)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            asyncio.get_running_loop().call_soon(self.deliver, context=self._network.context)

    def is_reading(self) -> bool:
        return self._reading

    # --- the rest of a transport ------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send(None)
            self.lose(None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
