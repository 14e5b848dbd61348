"""Connections to the other brokers of the cluster, one to each, for one purpose.

Answers of one connection come in the order of the requests, so each purpose whose requests may take long has `Peers` of
its own: forwarded requests, markers, transactions. A connection is made when it is first needed, and again when it was
lost. A client id may change, as that of forwarded requests does with each registration of the broker: connections that
were made under an earlier one are not used again. A call is never repeated here, since only the caller knows whether it
may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.client.connection import Connection
from headrace.model.image import BrokerImage
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.net import Net

_CONNECT_S = 5.0


class Peers:
    def __init__(self, net: Net, clock: Clock, client_id: str | Callable[[], str]) -> None:
        self._net = net
        self._clock = clock
        self._client_id = client_id
        self._connections: dict[tuple[str, int, str], asyncio.Task[Connection]] = {}

    async def reach(self, broker: BrokerImage) -> Connection:
        """An open connection. ConnectionLost: nothing was sent."""
        client_id = self._client_id if isinstance(self._client_id, str) else self._client_id()
        place = (broker.host, broker.port, client_id)
        opening = self._connections.get(place)
        if opening is None or (opening.done() and not _is_open(opening)):
            self._forget_closed()
            opening = self._connections[place] = asyncio.ensure_future(self._open(*place))
            opening.add_done_callback(_is_open)  # a failure that nobody waited for is no fault to log
        return await asyncio.shield(opening)  # others may wait for the same one

    async def call(
        self,
        broker: BrokerImage,
        api_key: int,
        message: Message,
        version: int | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Message:
        """The answer. ConnectionLost: whether the broker did what was asked is not known."""
        connection = await self.reach(broker)
        return await connection.call(api_key, message, version, timeout_s=timeout_s)

    def close(self) -> None:
        for opening in self._connections.values():
            if _is_open(opening):
                opening.result().close()
            else:
                opening.cancel()
        self._connections.clear()

    def _forget_closed(self) -> None:
        self._connections = {
            place: opening for place, opening in self._connections.items() if not opening.done() or _is_open(opening)
        }

    async def _open(self, host: str, port: int, client_id: str) -> Connection:
        connection = Connection(self._net, self._clock, host, port, client_id, _CONNECT_S)
        try:
            await connection.open()
        except asyncio.CancelledError:
            connection.close()
            raise
        return connection


def _is_open(opening: asyncio.Task[Connection]) -> bool:
    if not opening.done() or opening.cancelled() or opening.exception() is not None:
        return False
    return opening.result().is_open
