"""Connections to the other brokers of the cluster, one to each, for one purpose.

Answers of one connection come in the order of the questions, so who may wait long has `Peers` of its own: forwarded
requests, markers, transactions. A connection is made when it is first needed and made anew when it was lost; a call is
never repeated here, since only the caller knows whether it may be.
"""

from __future__ import annotations

import asyncio

from headrace.client.connection import Connection
from headrace.model.image import BrokerImage
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.net import Net

_CONNECT_S = 5.0


class Peers:
    def __init__(self, net: Net, clock: Clock, client_id: str) -> None:
        self._net = net
        self._clock = clock
        self._client_id = client_id
        self._connections: dict[tuple[str, int], asyncio.Task[Connection]] = {}

    async def reach(self, broker: BrokerImage) -> Connection:
        """An open connection. ConnectionLost: nothing was sent."""
        place = (broker.host, broker.port)
        opening = self._connections.get(place)
        if opening is None or (opening.done() and not _is_open(opening)):
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

    async def _open(self, host: str, port: int) -> Connection:
        connection = Connection(self._net, self._clock, host, port, self._client_id, _CONNECT_S)
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
