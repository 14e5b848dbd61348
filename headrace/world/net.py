"""Sockets. The only place that opens one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol


class Door(Protocol):
    """A place where connections arrive. Its address is taken at once; nobody comes in before it is opened."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def open(self) -> None: ...

    def close(self) -> None:
        """Take no further connections; those that are open stay."""
        ...


class Net(Protocol):
    async def bind(self, host: str, port: int, protocol: Callable[[], asyncio.BaseProtocol]) -> Door:
        """A closed door at host and port (0: any free one); each connection is handled by a protocol of its own."""
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
