"""The brokers that clients learn about, each with the address at which this client can reach it.

These are the registered brokers. If none is registered, because all lost their sessions and this is the first to
return, it is this broker alone: a client that gets an empty list closes all connections, and may never retry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.api.contract import Peer
from headrace.cluster.view import ClusterView
from headrace.model.image import NO_CONTROLLER, BrokerImage

AddressOf = Callable[[Peer, BrokerImage], tuple[str, int]]


class KnownBroker(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


class KnownBrokers:
    def __init__(self, view: ClusterView, address_of: AddressOf, broker_id: int) -> None:
        self._view = view
        self._address_of = address_of
        self._own_id = broker_id

    def told_to(self, peer: Peer) -> list[KnownBroker]:
        """The brokers for a client; never empty."""
        registered = self._view.image.brokers.values() or [BrokerImage(self._own_id, "", 0, None, -1)]
        return [KnownBroker(broker.id, *self._address_of(peer, broker), broker.rack) for broker in registered]

    @property
    def controller_id(self) -> int:
        """The controller, or this broker if there is none."""
        found = self._view.image.controller_for_clients
        return self._own_id if found == NO_CONTROLLER else found
