"""Who may come in, and who is closed for holding what others wait for: on a simulated network, in virtual time."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from headrace.api.contract import Caller
from headrace.model.broker_config import BrokerConfig
from headrace.server.answering import Buffer, Dispatch
from headrace.server.listener import Listener, listener_of
from sim.loop import SimClock, run
from sim.net import SimNetwork

MIB = 1 << 20
FRAME = struct.pack(">i", 8) + b"request!"


class Client(asyncio.Protocol):
    """Reads when it is told to."""

    def __init__(self) -> None:
        self.received = 0
        self.lost = False
        self.wire: asyncio.Transport = cast("asyncio.Transport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.wire = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Answer:
    """A reply that takes a moment."""

    def __init__(self, reply: list[Buffer], *, holds: bool) -> None:
        self.awaited = asyncio.ensure_future(asyncio.sleep(0.01))
        self.holds = holds
        self._reply = reply

    def finish(self, _: None) -> list[Buffer]:
        return self._reply


class Place:
    """A listener in a network."""

    def __init__(self, dispatch: Dispatch, **limits: Any) -> None:
        self.network = SimNetwork(1)
        clock = SimClock()
        terms = {"max_frame_bytes": 100 * MIB, "max_connections": 100, "max_idle_s": 600.0} | limits
        self.listener = Listener(self.network.host("broker"), clock, **terms)
        self.dispatch = dispatch

    async def __aenter__(self) -> Place:
        await self.listener.bind("broker", 9092)
        await self.listener.open(self.dispatch)
        self._running = asyncio.ensure_future(self.listener.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def client(self, host: str = "client", *, reads: bool = True) -> Client:
        client = Client()
        await self.network.host(host).connect("broker", 9092, lambda: client)
        if not reads:
            client.wire.pause_reading()
        await asyncio.sleep(0.1)
        return client


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    run(main(), seed=1)


def nothing(frame: memoryview, caller: Caller) -> None:
    return None


def large(frame: memoryview, caller: Caller) -> list[Buffer]:
    return [bytes(20 * MIB)]


def test_connections_over_the_limit_are_refused_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Place(nothing, max_connections=2) as place:
            clients = [await place.client() for _ in range(5)]
            assert [client.lost for client in clients] == [False, False, True, True, True]
            assert [record.message for record in caplog.records] == ["refusing client: max.connections=2 are open"]
            clients[0].wire.close()
            await asyncio.sleep(1)
            assert not (await place.client()).lost

    play(story)


def test_connections_of_one_address_have_a_limit_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Place(nothing, max_connections_of_address=2) as place:
            clients = [await place.client("greedy") for _ in range(4)]
            assert [client.lost for client in clients] == [False, False, True, True]
            assert not (await place.client("other")).lost
            assert "it has max.connections.per.ip=2 open" in caplog.text
            clients[0].wire.close()
            await asyncio.sleep(1)
            assert not (await place.client("greedy")).lost, "and refused ones were not counted"
            assert (await place.client("greedy")).lost
            place.listener.close()
            await asyncio.sleep(1)
            assert place.listener._of_address == {}, "addresses are forgotten with their last connection"

    play(story)


def test_brokers_of_the_cluster_come_in_when_strangers_have_taken_all_places() -> None:
    async def story() -> None:
        async with Place(nothing, max_connections=2, brokers={"broker-2"}) as place:
            strangers = [await place.client("stranger") for _ in range(3)]
            assert [client.lost for client in strangers] == [False, False, True]
            others = [await place.client("broker-2") for _ in range(63 + 2)]
            assert [client.lost for client in others] == [False] * 64 + [True]

    play(story)


def test_who_does_not_read_is_closed_while_others_wait_for_its_memory(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        crowded = False
        async with Place(large, crowded=lambda: crowded) as place:
            unread, idle = await place.client(reads=False), await place.client()
            unread.wire.write(FRAME)
            await asyncio.sleep(100)
            assert not unread.lost, "nobody waits"
            crowded = True
            await asyncio.sleep(9)
            assert len(place.listener.connections) == 2, "not yet"
            await asyncio.sleep(4)
            assert len(place.listener.connections) == 1
            assert "it does not read its replies" in caplog.text
            assert not idle.lost

    play(story)


def test_who_reads_fast_enough_or_all_there_is_is_not_closed() -> None:
    async def story() -> None:
        replies = {b"a": 60 * MIB, b"b": 200_000}

        def dispatch(frame: memoryview, caller: Caller) -> list[Buffer]:
            return [bytes(replies[bytes(frame[:1])])]

        async with Place(dispatch, crowded=lambda: True) as place:
            place.network.narrow("broker", "fast", 1.5 * MIB)
            place.network.narrow("broker", "slow", 50_000)
            fast, slow = await place.client("fast"), await place.client("slow")
            for _ in range(30):
                fast.wire.write(struct.pack(">i", 8) + b"a       ")
                slow.wire.write(struct.pack(">i", 8) + b"b       ")
            await asyncio.sleep(35)
            assert (fast.lost, slow.lost) == (False, False)

    play(story)


def test_who_does_not_finish_a_request_is_closed_while_others_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        seen: list[int] = []

        def dispatch(frame: memoryview, caller: Caller) -> None:
            seen.append(len(frame))

        async with Place(dispatch, max_frame_bytes=10 * MIB, queued_request_bytes=10 * MIB + 4) as place:
            hostile = await place.client("hostile")
            hostile.wire.write(struct.pack(">i", 10 * MIB) + bytes(9 * MIB))
            await asyncio.sleep(100)
            assert not hostile.lost, "nobody waits"
            honest = await place.client("honest")
            honest.wire.write(struct.pack(">i", 5 * MIB) + bytes(5 * MIB))
            small = await place.client("small")
            small.wire.write(FRAME)
            await asyncio.sleep(5)
            assert seen == [8], "small requests never wait"
            assert len(place.listener.receive_buffer) == 64 * 1024
            await asyncio.sleep(8)
            assert hostile.lost
            assert seen == [8, 5 * MIB]
            assert (honest.lost, small.lost) == (False, False)
            assert "the rest of a request did not come" in caplog.text
            assert len(place.listener.receive_buffer) == 512 * 1024

    play(story)


def test_who_sends_slowly_but_steadily_may_go_on_while_others_wait() -> None:
    async def story() -> None:
        seen: list[int] = []

        def dispatch(frame: memoryview, caller: Caller) -> None:
            seen.append(len(frame))

        async with Place(dispatch, max_frame_bytes=40 * MIB, queued_request_bytes=40 * MIB) as place:
            place.network.narrow("steady", "broker", 1.5 * MIB)
            steady, other = await place.client("steady"), await place.client("other")
            for _ in range(40):
                steady.wire.write((struct.pack(">i", 40 * MIB - 4) if _ == 0 else b"    ") + bytes(MIB - 4))
            await asyncio.sleep(20)
            other.wire.write(struct.pack(">i", 39 * MIB) + bytes(39 * MIB))
            await asyncio.sleep(40)
            assert sorted(seen) == [39 * MIB, 40 * MIB - 4]
            assert (steady.lost, other.lost) == (False, False)

    play(story)


def test_idle_connections_are_closed() -> None:
    async def story() -> None:
        async with Place(nothing, max_idle_s=60.0) as place:
            idle, busy = await place.client(), await place.client()
            for _ in range(10):
                await asyncio.sleep(10)
                busy.wire.write(FRAME)
            await asyncio.sleep(1)
            assert (idle.lost, busy.lost) == (True, False)

    play(story)


def test_malformed_requests_write_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Place(nothing) as place:
            for _ in range(50):
                (await place.client()).wire.write(struct.pack(">i", -1) + b"    ")
            assert len(caplog.records) == 1
            await asyncio.sleep(120)
            assert len(caplog.records) == 2
            assert "a frame of -1 bytes" in caplog.records[0].message
            assert caplog.records[1].message.startswith("client: 49 more of these within a minute, the last: ")

    play(story)


def test_a_listener_that_is_closed_says_what_it_has_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Place(nothing, max_connections=1) as place:
            for _ in range(5):
                await place.client()
            place.listener.close()
            assert "client: 3 more of these" in caplog.text

    play(story)


@pytest.mark.parametrize(
    ("config", "fitting", "most", "warned"),
    [
        (BrokerConfig(), 384, 384, False),
        (BrokerConfig(max_connections=100), 384, 100, False),
        (BrokerConfig(max_connections=500), 384, 500, True),
    ],
)
def test_the_default_limit_is_what_the_descriptors_allow(
    config: BrokerConfig, fitting: int, most: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    listener = listener_of(SimNetwork(1).host("broker"), SimClock(), config, fitting)
    assert listener._max_connections == most
    assert ("ulimit" in caplog.text) == warned


@pytest.mark.parametrize(("queued", "most"), [(-1, 1 << 62), (1, 104_857_604), (1 << 30, 1 << 30)])
def test_the_budget_of_unfinished_requests_has_room_for_the_largest(queued: int, most: int) -> None:
    config = BrokerConfig(queued_max_request_bytes=queued)
    listener = listener_of(SimNetwork(1).host("broker"), SimClock(), config, 100)
    assert listener.unfinished._most_bytes == most


@pytest.mark.parametrize("seed", range(1, 4))
def test_all_requests_are_answered_in_order_while_room_is_short(seed: int) -> None:
    """Requests and replies of all sizes, over slow lines, from clients that stop reading now and then."""
    chance = random.Random(seed)
    sizes = [8, 100, 70_000, 300_000, 2 * MIB - 4, 3 * MIB, 7 * MIB]

    waited: set[bool] = set()

    def dispatch(frame: memoryview, caller: Caller) -> list[Buffer] | Answer:
        number, reply_bytes = struct.unpack_from(">ii", frame)
        assert frame[8:] == bytes([number]) * (len(frame) - 8)
        reply: list[Buffer] = [struct.pack(">ii", number, reply_bytes), bytes(reply_bytes)]
        return Answer(reply, holds=number % 3 == 0) if number % 5 == 0 else reply

    async def talk(place: Place, number: int) -> None:
        place.network.narrow(f"client-{number}", "broker", chance.choice([2, 5, 20]) * MIB)
        place.network.narrow("broker", f"client-{number}", chance.choice([2, 20, 200]) * MIB)
        client = await place.client(f"client-{number}")
        expected = 0
        for serial in range(12):
            size, reply_bytes = chance.choice(sizes), chance.choice(sizes)
            expected += 8 + reply_bytes
            body = struct.pack(">ii", serial, reply_bytes) + bytes([serial]) * (size - 8)
            request = struct.pack(">i", size) + body
            for at in range(0, len(request), MIB // 2):
                client.wire.write(request[at : at + MIB // 2])
            if chance.random() < 0.2:
                client.wire.pause_reading()
                await asyncio.sleep(chance.random() * 5)
                client.wire.resume_reading()
        async with asyncio.timeout(1000):
            while client.received < expected and not client.lost:
                await asyncio.sleep(0.5)
                waited.add(place.listener.unfinished.waiting > 0)
        assert client.received == expected

    async def story() -> None:
        async with Place(dispatch, max_frame_bytes=8 * MIB, queued_request_bytes=8 * MIB) as place:
            await asyncio.gather(*(talk(place, number) for number in range(5)))
            assert place.listener.unfinished.holds == {}
            assert place.listener.unfinished.held_bytes == 0
        assert waited == {True, False}, "room was short at times"

    play(story)
