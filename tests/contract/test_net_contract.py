"""One contract, two networks: whatever brokers and clients rely on holds on real sockets and on the simulated wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from headrace.world.net import Door, Net, RealNet
from sim.loop import run
from sim.net import SimNetwork

HOST = {"real": "127.0.0.1", "sim": "here"}


class Ear(asyncio.Protocol):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.news = asyncio.Event()
        self.lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.news.clear()
                await self.news.wait()


class BufferedEar(asyncio.BufferedProtocol):
    """Reads into a small buffer of its own, as the broker's connections do."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self._buffer = bytearray(1000)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self._buffer[:nbytes]


Story = Callable[[Net, str], Coroutine[Any, Any, None]]
Play = Callable[[Story], None]


@pytest.fixture(params=["real", "sim"])
def play(request: pytest.FixtureRequest) -> Play:
    def on_real(story: Story) -> None:
        asyncio.run(story(RealNet(), HOST["real"]))

    def on_sim(story: Story) -> None:
        async def main() -> None:
            await story(SimNetwork().host(HOST["sim"]), HOST["sim"])

        run(main(), seed=1)

    return on_real if request.param == "real" else on_sim


class Arrivals:
    """A door, and the ears of those who came in."""

    def __init__(self) -> None:
        self.ears: list[Ear] = []

    def welcome(self) -> Ear:
        self.ears.append(Ear())
        return self.ears[-1]

    async def open(self, net: Net, host: str) -> Door:
        door = await net.bind(host, 0, self.welcome)
        await door.open()
        return door


async def call(net: Net, door: Door) -> Ear:
    ear = Ear()
    await net.connect(*door.address, lambda: ear)
    assert ear.transport is not None, "connection_made has not been called"
    return ear


async def met(arrivals: Arrivals) -> Ear:
    async with asyncio.timeout(60):
        while not arrivals.ears or arrivals.ears[-1].transport is None:
            await asyncio.sleep(0.001)
    return arrivals.ears[-1]


def test_bytes_arrive_in_order_both_ways(play: Play) -> None:
    async def story(net: Net, host: str) -> None:
        arrivals = Arrivals()
        door = await arrivals.open(net, host)
        near = await call(net, door)
        assert near.transport is not None
        sent = b"".join(str(at).encode() for at in range(50_000))
        near.transport.write(sent[:7])
        near.transport.writelines([sent[7:1000], sent[1000:]])
        far = await met(arrivals)
        await far.until(lambda: len(far.heard) == len(sent))
        assert far.heard == sent
        assert far.transport is not None
        far.transport.write(b"thanks")
        await near.until(lambda: near.heard == b"thanks")
        near.transport.close()
        door.close()

    play(story)


def test_each_side_knows_the_addresses(play: Play) -> None:
    async def story(net: Net, host: str) -> None:
        arrivals = Arrivals()
        door = await arrivals.open(net, host)
        near = await call(net, door)
        far = await met(arrivals)
        assert near.transport is not None
        assert far.transport is not None
        assert near.transport.get_extra_info("peername")[:2] == door.address
        assert far.transport.get_extra_info("peername") == near.transport.get_extra_info("sockname")
        near.transport.close()
        door.close()

    play(story)


def test_who_reads_into_buffers_gets_the_same(play: Play) -> None:
    async def story(net: Net, host: str) -> None:
        ear = BufferedEar()
        door = await net.bind(host, 0, lambda: ear)
        await door.open()
        near = await call(net, door)
        assert near.transport is not None
        near.transport.write(bytes(range(256)) * 100)
        async with asyncio.timeout(60):
            while len(ear.heard) < 25_600:
                await asyncio.sleep(0.001)
        assert ear.heard == bytes(range(256)) * 100
        near.transport.close()
        door.close()

    play(story)


def test_what_was_written_before_a_close_arrives_before_it(play: Play) -> None:
    async def story(net: Net, host: str) -> None:
        arrivals = Arrivals()
        door = await arrivals.open(net, host)
        near = await call(net, door)
        far = await met(arrivals)
        assert near.transport is not None
        near.transport.write(b"goodbye")
        near.transport.close()
        assert near.transport.is_closing()
        await far.until(lambda: far.lost)
        await near.until(lambda: near.lost)
        assert far.heard == b"goodbye"
        door.close()

    play(story)


def test_an_aborted_connection_ends_on_both_sides(play: Play) -> None:
    async def story(net: Net, host: str) -> None:
        arrivals = Arrivals()
        door = await arrivals.open(net, host)
        near = await call(net, door)
        far = await met(arrivals)
        assert far.transport is not None
        far.transport.abort()
        await near.until(lambda: near.lost)
        await far.until(lambda: far.lost)
        door.close()

    play(story)


def test_nobody_comes_in_before_a_door_is_open_or_after_it_is_closed(play: Play) -> None:
    async def story(net: Net, host: str) -> None:
        arrivals = Arrivals()
        door = await net.bind(host, 0, arrivals.welcome)
        with pytest.raises(OSError):
            await net.connect(*door.address, Ear)
        await door.open()
        near = await call(net, door)
        far = await met(arrivals)
        door.close()
        with pytest.raises(OSError):
            await net.connect(*door.address, Ear)
        assert near.transport is not None
        near.transport.write(b"those who are in stay")
        await far.until(lambda: far.heard == b"those who are in stay")
        near.transport.close()

    play(story)


def test_an_address_is_taken_once(play: Play) -> None:
    async def story(net: Net, host: str) -> None:
        door = await net.bind(host, 0, Ear)
        await door.open()
        with pytest.raises(OSError):
            await net.bind(host, door.address[1], Ear)
        door.close()

    play(story)


def test_who_stops_reading_gets_the_rest_when_he_goes_on(play: Play) -> None:
    async def story(net: Net, host: str) -> None:
        arrivals = Arrivals()
        door = await arrivals.open(net, host)
        near = await call(net, door)
        far = await met(arrivals)
        assert near.transport is not None
        assert far.transport is not None
        far.transport.pause_reading()
        near.transport.write(b"later")
        far.transport.resume_reading()
        await far.until(lambda: far.heard == b"later")
        near.transport.close()
        door.close()

    play(story)
