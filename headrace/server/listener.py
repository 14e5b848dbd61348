"""The open port and everybody who came in through it: the shared receive buffer, the limits, the idle sweep."""

from __future__ import annotations

import logging

from headrace.api.contract import PLAINTEXT, Caller, Disconnect
from headrace.model.failure import Failure
from headrace.server.connection import Connection, Dispatch
from headrace.server.spare_buffers import SpareBuffers
from headrace.server.turns import Turns
from headrace.server.vigil import Vigil
from headrace.world.clock import Clock
from headrace.world.net import Door, Net

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 512 * 1024
_SPARE_BUFFERS = 8


def _closed(frame: memoryview, caller: Caller) -> None:
    raise Disconnect("the broker is not serving yet")


class Listener:
    """Hands every connection to a `Connection`; see there for why one receive buffer serves them all."""

    def __init__(
        self,
        net: Net,
        clock: Clock,
        *,
        max_frame_bytes: int,
        max_connections: int,
        max_idle_s: float,
        vigil: Vigil | None = None,
    ) -> None:
        self.name = PLAINTEXT
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.max_frame_bytes = max_frame_bytes
        self.spare_buffers = SpareBuffers(_SPARE_BUFFERS)
        self.turns = Turns(vigil)
        self.connections: dict[Connection, None] = {}  # in the order of their coming
        self.accepted = 0
        self.monotonic = clock.monotonic
        self._net = net
        self._clock = clock
        self._dispatch: Dispatch = _closed
        self._max_connections = max_connections
        self._max_idle_s = max_idle_s
        self._door: Door | None = None

    @property
    def address(self) -> tuple[str, int]:
        assert self._door is not None, "the listener is not bound"
        return self._door.address

    async def bind(self, host: str, port: int) -> None:
        """Take the address, so that a port in use is known before anything else is touched."""
        try:
            self._door = await self._net.bind(host, port, lambda: Connection(self._dispatch, self))
        except OSError as error:
            raise Failure(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --listen") from None

    async def open(self, dispatch: Dispatch) -> None:
        """Let clients in."""
        assert self._door is not None, "the listener is not bound"
        self._dispatch = dispatch
        await self._door.open()

    async def run(self) -> None:
        """Close connections that have been silent for too long; ends by cancellation."""
        while True:
            await self._clock.sleep(min(30.0, self._max_idle_s / 2))
            silent_since = self._clock.monotonic() - self._max_idle_s
            for connection in [c for c in self.connections if c.last_active < silent_since]:
                connection.close()

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
        for connection in list(self.connections):
            connection.close()

    # --- what a connection tells ------------------------------------------------------------------------------------

    def entered(self, connection: Connection) -> bool:
        self.accepted += 1
        if len(self.connections) >= self._max_connections:
            logger.warning(
                "refusing %s: max.connections=%d are open", connection.caller.peer.host, self._max_connections
            )
            return False
        self.connections[connection] = None
        return True

    def left(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
