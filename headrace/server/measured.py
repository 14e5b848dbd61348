"""What the metrics of a broker are of, and all of them together.

Loaded only where metrics are wanted: a tenth of the start would go into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from headrace.server.controller_metrics import controller_metrics
from headrace.server.group_metrics import group_metrics
from headrace.server.metrics import broker_metrics
from headrace.server.replica_metrics import replica_metrics
from headrace.server.share_metrics import share_metrics
from headrace.server.transaction_metrics import transaction_metrics
from headrace.server.view_metrics import view_metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from headrace.api.table import Rooms
    from headrace.replicas.scrub import Scrub
    from headrace.server.listener import Listener
    from headrace.server.loop_lag import LoopLag
    from headrace.server.requests_seen import RequestsSeen
    from headrace.server.shares import Shares


class Measured(Struct):
    rooms: Rooms
    listener: Listener
    shares: Shares
    scrub: Scrub
    seen: RequestsSeen
    lag: LoopLag
    names: dict[int, str]
    """Of the APIs that are served."""

    def metrics(self) -> Iterator[Metric]:
        rooms = self.rooms
        clock, image = rooms.world.clock, rooms.view.image
        yield from broker_metrics(rooms.host, self.listener, self.seen, self.names, self.lag)
        yield from controller_metrics(rooms.controller, image)
        yield from replica_metrics(rooms.host, self.scrub)
        yield from group_metrics(rooms.groups, rooms.host, clock)
        yield from transaction_metrics(rooms.transactions, rooms.host, clock)
        yield from view_metrics(rooms.views, image)
        yield from share_metrics(self.shares.sessions)
