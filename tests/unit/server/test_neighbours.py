"""The other brokers of a cluster are known by the addresses of their hosts."""

from __future__ import annotations

import asyncio

from headrace.model.image import BrokerImage, ClusterImage
from headrace.server.neighbours import Neighbours
from headrace.world.clock import SystemClock
from headrace.world.net import RealNet


class Names(RealNet):
    def __init__(self) -> None:
        self.known = {"one": ["10.0.0.1"], "two": ["10.0.0.2", "fe80::2"]}

    async def addresses(self, host: str) -> list[str]:
        if host not in self.known:
            raise OSError(f"no {host}")
        return self.known[host]


def cluster(*hosts: str) -> ClusterImage:
    brokers = {number: BrokerImage(number, host, 9092, None, number) for number, host in enumerate(hosts, start=1)}
    return ClusterImage("cluster", -1, brokers=brokers)


def test_brokers_are_known_by_their_addresses() -> None:
    async def story() -> None:
        names, image = Names(), cluster("one", "two")
        neighbours = Neighbours(names, SystemClock(), lambda: image, 1)
        assert "10.0.0.2" not in neighbours
        await neighbours.look_up()
        assert "10.0.0.2" in neighbours
        assert "::ffff:10.0.0.2" in neighbours, "as a socket for both versions of IP says it"
        assert "fe80::2" in neighbours
        assert "10.0.0.1" not in neighbours, "this broker itself"
        assert "10.0.0.3" not in neighbours
        del names.known["two"]
        await neighbours.look_up()
        assert "10.0.0.2" in neighbours, "names cannot be looked up for a while"
        image = cluster("one")
        await neighbours.look_up()
        assert "10.0.0.2" not in neighbours

    asyncio.run(story())
