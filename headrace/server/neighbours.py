"""The addresses of the cluster's other brokers, so that the listener lets them in when strangers have taken all places.

Run by the broker if it belongs to a cluster. Brokers are registered with the host name or address at which they are
reached; names are looked up every half minute, and one that cannot be found keeps the addresses it had. It is assumed
that a broker connects from where it is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.model.image import ClusterImage
from headrace.world.clock import Clock
from headrace.world.net import Net

_LOOK_UP_S = 30.0
_IPV4_IN_IPV6 = "::ffff:"


class Neighbours:
    def __init__(self, net: Net, clock: Clock, image: Callable[[], ClusterImage], broker_id: int) -> None:
        self._net = net
        self._clock = clock
        self._image = image
        self._broker_id = broker_id
        self._addresses: Mapping[str, frozenset[str]] = {}  # by host name

    def __contains__(self, host: object) -> bool:
        """Whether a connection from this address is probably one of theirs."""
        address = str(host).removeprefix(_IPV4_IN_IPV6)
        return any(address in addresses for addresses in self._addresses.values())

    async def run(self) -> None:
        """Ends by cancellation."""
        while True:
            await self.look_up()
            await self._clock.sleep(_LOOK_UP_S)

    async def look_up(self) -> None:
        hosts = {broker.host for broker in self._image().brokers.values() if broker.id != self._broker_id}
        found: dict[str, frozenset[str]] = {}
        for host in sorted(hosts):
            try:
                found[host] = frozenset(await self._net.addresses(host))
            except OSError:
                found[host] = self._addresses.get(host, frozenset())
        self._addresses = found
