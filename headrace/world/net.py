"""Sockets. The only place that opens one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol


class Listening(Protocol):
    """An open door: where it is, and how to shut it."""

    @property
    def address(self) -> tuple[str, int]: ...

    def close(self) -> None:
        """Take no further connections; those that are open stay."""
        ...


class Net(Protocol):
    async def listen(self, host: str, port: int, protocol: Callable[[], asyncio.BaseProtocol]) -> Listening:
        """Accept connections on host and port (0: any free one), each handled by a protocol of its own."""
        ...


class _OpenDoor:
    def __init__(self, server: asyncio.AbstractServer, address: tuple[str, int]) -> None:
        self._server = server
        self.address = address

    def close(self) -> None:
        self._server.close()


class RealNet:
    async def listen(self, host: str, port: int, protocol: Callable[[], asyncio.BaseProtocol]) -> Listening:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        door = socket.socket(family, socket.SOCK_STREAM)
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind((host, port))
            server = await asyncio.get_running_loop().create_server(protocol, sock=door, backlog=1024)
        except BaseException:
            door.close()
            raise
        bound = door.getsockname()
        return _OpenDoor(server, (bound[0], bound[1]))
