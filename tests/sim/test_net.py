"""The faults of the simulated wire; what it has in common with the real one is in tests/contract."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from sim.loop import run
from sim.net import SimNetwork
from sim.process import Process


class Ear(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard: list[tuple[float, bytes]] = []
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard.append((asyncio.get_running_loop().time(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    @property
    def text(self) -> bytes:
        return b"".join(data for _, data in self.heard)


async def pair(network: SimNetwork) -> tuple[Ear, Ear]:
    """A client on host `a`, and what it talks to on host `b`."""
    near, far = Ear(), Ear()
    door = await network.host("b").bind("b", 9092, lambda: far)
    await door.open()
    await network.host("a").connect("b", 9092, lambda: near)
    await asyncio.sleep(0.1)
    return near, far


def test_a_cut_link_holds_everything_until_it_is_mended() -> None:
    async def story() -> None:
        network = SimNetwork()
        near, far = await pair(network)
        network.cut("a", "b")
        near.transport.write(b"one")
        near.transport.write(b"two")
        far.transport.write(b"back")
        await asyncio.sleep(10)
        assert far.text == near.text == b""
        network.mend()
        await asyncio.sleep(0.1)
        assert (far.text, near.text) == (b"onetwo", b"back")

    run(story(), seed=0)


def test_a_link_may_be_cut_in_one_direction() -> None:
    async def story() -> None:
        network = SimNetwork()
        near, far = await pair(network)
        network.cut("a", "b", one_way=True)
        near.transport.write(b"unheard")
        far.transport.write(b"heard")
        await asyncio.sleep(10)
        assert (far.text, near.text) == (b"", b"heard")

    run(story(), seed=0)


def test_a_connect_over_a_cut_link_waits_and_gives_up_in_the_end() -> None:
    async def story() -> None:
        network = SimNetwork()
        await pair(network)
        network.cut("a", "b")
        with pytest.raises(TimeoutError):
            await network.host("a").connect("b", 9092, Ear)
        waiting = asyncio.ensure_future(network.host("a").connect("b", 9092, Ear))
        await asyncio.sleep(5)
        network.mend()
        await waiting

    run(story(), seed=0)


def test_a_slow_link_delays_and_keeps_the_order() -> None:
    async def story() -> None:
        network = SimNetwork()
        near, far = await pair(network)
        network.slow("a", "b", 2.0)
        start = asyncio.get_running_loop().time()
        for at in range(20):
            near.transport.write(bytes([at]))
        await asyncio.sleep(10)
        assert far.text == bytes(range(20))
        assert far.heard[0][0] - start >= 1.0

    run(story(), seed=0)


def test_a_reset_is_told_to_both_sides() -> None:
    async def story() -> None:
        network = SimNetwork()
        near, far = await pair(network)
        network.reset("b", "a")
        await asyncio.sleep(0)
        assert isinstance(near.lost[0], ConnectionResetError)
        assert isinstance(far.lost[0], ConnectionResetError)

    run(story(), seed=0)


def test_a_dead_process_closes_its_connections_and_a_dead_host_says_nothing_until_it_is_back() -> None:
    async def story() -> None:
        network = SimNetwork()
        near, _ = await pair(network)
        network.process_died("b")
        await asyncio.sleep(0.1)
        assert near.lost == [None]
        with pytest.raises(ConnectionRefusedError):
            await network.host("a").connect("b", 9092, Ear)
        near, _ = await pair(network)
        network.power_lost("b")
        near.transport.write(b"hello?")
        await asyncio.sleep(100)
        assert near.lost == []
        network.power_back("b")
        await asyncio.sleep(0.1)
        assert isinstance(near.lost[0], ConnectionResetError)

    run(story(), seed=0)


def test_a_paused_process_reads_its_mail_when_it_goes_on() -> None:
    async def story() -> None:
        network = SimNetwork()
        far = Ear()
        server = Process("server")

        async def serve() -> None:
            door = await network.host("b").bind("b", 9092, lambda: far)
            await door.open()

        await server.start(serve())
        near = Ear()
        server.pause()
        await network.host("a").connect("b", 9092, lambda: near)
        near.transport.write(b"are you there?")
        await asyncio.sleep(10)
        assert far.heard == []
        server.resume()
        await asyncio.sleep(0.1)
        assert far.text == b"are you there?"

    run(story(), seed=0)
