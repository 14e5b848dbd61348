"""The open port and everybody who came in through it: the shared receive buffer, the limits, and two sweeps.

One sweep closes connections that are idle for too long. The other closes those that hold what others wait for and make
too little progress (progress.py): while room for replies is short (`crowded`), those that do not read theirs; while
room for unfinished requests is short, those that do not send the rest of theirs, or do not read the replies that they
must read first. While nobody waits, nobody is closed for being slow.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Hashable, Mapping

from headrace.api.contract import PLAINTEXT, Caller, Disconnect
from headrace.model.broker_config import BrokerConfig
from headrace.model.failure import Failure
from headrace.model.settings import INT_MAX
from headrace.server.answering import Dispatch
from headrace.server.complaints import Complaints
from headrace.server.connection import Connection
from headrace.server.progress import LEAST_BYTES, PATIENCE_S, Progress
from headrace.server.spare_buffers import SpareBuffers
from headrace.server.turns import Turns
from headrace.server.unfinished import UNLIMITED, UnfinishedRequests
from headrace.server.vigil import Vigil
from headrace.world.clock import Clock
from headrace.world.net import Door, Net

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 512 * 1024
_CROWDED_RECEIVE_BYTES = 64 * 1024  # that a connection reads at a time while room for unfinished requests is short
_SPARE_BUFFERS = 8
_BROKER_PLACES = 64  # beyond max.connections, for other brokers of the cluster; see also descriptors.py
_SWEEP_S = 1.0
_IDLE_SWEEP_S = 30.0


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
        max_connections_of_address: int = INT_MAX,
        queued_request_bytes: int = UNLIMITED,
        crowded: Callable[[], bool] = lambda: False,
        brokers: Container[str] = (),
        vigil: Vigil | None = None,
    ) -> None:
        """`queued_request_bytes`: of unfinished requests, see unfinished.py. `crowded`: whether somebody waits for room
        for a reply. `brokers`: the addresses of the cluster's other brokers, who come in when strangers have taken all
        places."""
        self.name = PLAINTEXT
        self._receive_buffer = self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.max_frame_bytes = max_frame_bytes
        self.spare_buffers = SpareBuffers(_SPARE_BUFFERS)
        self.unfinished = UnfinishedRequests(queued_request_bytes, self._read_less)
        self.complaints = Complaints(clock.monotonic)
        self.turns = Turns(vigil)
        self.connections: dict[Connection, None] = {}  # in the order of their coming
        self.accepted = 0
        self.on_left: Callable[[Caller], None] | None = None
        """Told of every connection that is gone."""
        self.monotonic = clock.monotonic
        self._net = net
        self._clock = clock
        self._dispatch: Dispatch = _closed
        self._max_connections = max_connections
        self._max_of_address = max_connections_of_address
        self._of_address: dict[str, int] = {}  # the number of connections
        self._max_idle_s = max_idle_s
        self._crowded = crowded
        self._brokers = brokers
        self._sending, self._receiving = Progress(), Progress()
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
        """Sweep; ends by cancellation."""
        idle_sweep_s = min(_IDLE_SWEEP_S, self._max_idle_s / 2)
        due_s = self.monotonic() + idle_sweep_s
        while True:
            await self._clock.sleep(min(_SWEEP_S, idle_sweep_s))
            now_s = self.monotonic()
            self._close_stalled(now_s)
            self.complaints.tell(now_s)
            if now_s >= due_s:
                due_s = now_s + idle_sweep_s
                silent_since = now_s - self._max_idle_s
                for connection in [c for c in self.connections if c.last_active < silent_since]:
                    connection.close()

    def _close_stalled(self, now_s: float) -> None:
        sending: dict[Hashable, tuple[int, int]] = {}
        receiving: dict[Hashable, tuple[int, int]] = {}
        owners: dict[Hashable, Connection] = {}
        if self.unfinished.waiting:
            for connection, hold in self.unfinished.holds.items():
                if not isinstance(connection, Connection):
                    continue  # a copy, which goes by itself
                owners[hold] = owners[connection] = connection
                receiving[hold] = connection.receiving()
                sending[connection] = connection.sending()
        if self._crowded():
            for connection in self.connections:
                owners[connection] = connection
                sending[connection] = connection.sending()
        least = f"{LEAST_BYTES >> 20} MiB, nor all there was, in {PATIENCE_S:.0f} seconds"
        for stalled in self._receiving.look(now_s, _unmoved(receiving)):
            owners[stalled].drop(f"the rest of a request did not come ({least}), and others wait for its memory")
        for stalled in self._sending.look(now_s, _unmoved(sending)):
            owners[stalled].drop(f"it does not read its replies ({least}), and others wait for their memory")

    def _read_less(self, full: bool) -> None:
        self.receive_buffer = self._receive_buffer[:_CROWDED_RECEIVE_BYTES] if full else self._receive_buffer

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
        self.complaints.tell(math.inf)
        for connection in list(self.connections):
            connection.close()

    # --- what a connection tells ------------------------------------------------------------------------------------

    def entered(self, connection: Connection) -> bool:
        self.accepted += 1
        host = connection.caller.peer.host
        of_address = self._of_address.get(host, 0)
        places = self._max_connections + (_BROKER_PLACES if host in self._brokers else 0)
        if len(self.connections) >= places:
            self.complaints.note(host, f"refusing {host}: max.connections={self._max_connections} are open")
            return False
        if of_address >= self._max_of_address:
            self.complaints.note(host, f"refusing {host}: it has max.connections.per.ip={self._max_of_address} open")
            return False
        self.connections[connection] = None
        self._of_address[host] = of_address + 1
        return True

    def left(self, connection: Connection) -> None:
        if connection not in self.connections:
            return  # it was refused
        del self.connections[connection]
        host = connection.caller.peer.host
        self._of_address[host] -= 1
        if not self._of_address[host]:
            del self._of_address[host]
        if self.on_left is not None:
            self.on_left(connection.caller)


def listener_of(
    net: Net,
    clock: Clock,
    config: BrokerConfig,
    fitting: int,
    *,
    brokers: Container[str] = (),
    crowded: Callable[[], bool] = lambda: False,
    vigil: Vigil | None = None,
) -> Listener:
    """With the limits of `config`; `fitting`: the connections for which there are descriptors."""
    most, queued_bytes = config.max_connections, config.queued_max_request_bytes
    if most is not None and most > fitting:
        logger.warning(
            "max.connections=%d, but there are descriptors for %d: with more connections the broker may fail to open "
            "files; raise the limit of open files (ulimit -n)",
            most,
            fitting,
        )
    return Listener(
        net,
        clock,
        max_frame_bytes=config.socket_request_max_bytes,
        max_connections=fitting if most is None else most,
        max_connections_of_address=config.max_connections_per_ip,
        max_idle_s=config.connections_max_idle_ms / 1000,
        queued_request_bytes=UNLIMITED if queued_bytes < 0 else max(queued_bytes, config.socket_request_max_bytes + 4),
        crowded=crowded,
        brokers=brokers,
        vigil=vigil,
    )


def _unmoved(transfers: Mapping[Hashable, tuple[int, int]]) -> dict[Hashable, tuple[int, int]]:
    """Those of which something is still to be moved."""
    return {key: transfer for key, transfer in transfers.items() if transfer[1] > 0}
