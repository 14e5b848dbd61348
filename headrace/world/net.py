"""Sockets. The only module that opens them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview
_MOST_BUFFERS = 512  # in one call; the system takes a thousand


class Door(Protocol):
    """A listening socket. Its address is bound immediately; connections are accepted once it is opened."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def open(self) -> None: ...

    def close(self) -> None:
        """Accept no more connections; open ones stay open."""
        ...


class Net(Protocol):
    async def bind(self, host: str, port: int, protocol: Callable[[], asyncio.BaseProtocol]) -> Door:
        """Bind a Door, not open yet, to host and port (0: any free one); each connection gets its own protocol."""
        ...

    async def connect(self, host: str, port: int, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        """Connect; the protocol's connection_made has been called when this returns. OSError on failure."""
        ...

    async def addresses(self, host: str) -> list[str]:
        """The IP addresses of a host. OSError if they cannot be found out."""
        ...


class _RealDoor:
    def __init__(self, server: asyncio.Server, address: tuple[str, int]) -> None:
        self._server = server
        self.address = address

    async def open(self) -> None:
        await self._server.start_serving()

    def close(self) -> None:
        self._server.close()


class RealNet:
    async def bind(self, host: str, port: int, protocol: Callable[[], asyncio.BaseProtocol]) -> Door:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        door = socket.socket(family, socket.SOCK_STREAM)
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind((host, port))
            loop = asyncio.get_running_loop()
            server = await loop.create_server(protocol, sock=door, backlog=1024, start_serving=False)
        except BaseException:
            door.close()
            raise
        bound = door.getsockname()
        return _RealDoor(server, (bound[0], bound[1]))

    async def connect(self, host: str, port: int, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        await asyncio.get_running_loop().create_connection(protocol, host, port)

    async def addresses(self, host: str) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return [str(entry[4][0]) for entry in found]


class Line(Protocol):
    """A blocking connection: each call blocks until it is done, or raises OSError."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """All of them, one after the other."""
        ...

    def receive_into(self, buffer: memoryview) -> None:
        """Fill the whole buffer."""
        ...

    def set_timeout(self, seconds: float) -> None:
        """The timeout for reads and writes."""
        ...

    def close(self) -> None: ...


class _RealLine:
    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def send(self, buffers: Sequence[Buffer]) -> None:
        left = [memoryview(buffer) for buffer in buffers]
        while left:
            sent = self._line.sendmsg(left[:_MOST_BUFFERS])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def receive_into(self, buffer: memoryview) -> None:
        while buffer:
            got = self._line.recv_into(buffer)
            if not got:
                raise ConnectionError("the other side closed the connection")
            buffer = buffer[got:]

    def set_timeout(self, seconds: float) -> None:
        self._line.settimeout(seconds)

    def close(self) -> None:
        self._line.close()


def dial(host: str, port: int, timeout_s: float) -> Line:
    """A blocking connection to host and port."""
    line = socket.create_connection((host, port), timeout_s)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _RealLine(line)
