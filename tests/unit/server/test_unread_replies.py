"""What a client costs that does not read its replies, or that does not finish its requests."""

from __future__ import annotations

import asyncio
import struct

import pytest

from headrace.api.contract import Caller
from headrace.server.answering import Buffer
from headrace.server.connection import Connection
from headrace.server.spare_buffers import SPARE_BYTES
from headrace.wire.messages import Message
from tests.unit.server.test_connection import SHARED, Keeper, Later, Wire, connect, feed, framed

MIB = 1 << 20


class Unread(Wire):
    """The wire to a peer that does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.high = self.unread = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def writelines(self, chunks: list[Buffer]) -> None:  # type: ignore[override]
        self.unread += sum(map(len, chunks))
        if self.unread > self.high and self.connection is not None:
            self.connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.unread

    def read_all(self) -> None:
        self.unread = 0
        if self.connection is not None:
            self.connection.resume_writing()


def flood(reply: Buffer, frames: int) -> tuple[list[int], Connection, Unread]:
    """Frames of a client that gets such replies and reads none; how many were handled is in the list."""
    seen: list[int] = []

    def dispatch(frame: memoryview, caller: Caller) -> list[Buffer]:
        seen.append(len(frame))
        return [reply]

    wire = Unread()
    connection = Connection(dispatch, Keeper(SHARED))  # type: ignore[arg-type]
    wire.connection = connection
    connection.connection_made(wire)
    feed(connection, framed([b"request!"] * frames), [SHARED])
    return seen, connection, wire


async def some_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_one_large_reply_is_made_in_a_turn() -> None:
    async def story() -> None:
        seen, _, _ = flood(bytes(2 * MIB), 64)
        assert len(seen) == 1
        await asyncio.sleep(0)
        assert len(seen) == 2

    asyncio.run(story())


def test_replies_count_in_a_turn_as_requests_do() -> None:
    async def story() -> None:
        seen, _, _ = flood(bytes(100_000), 64)
        assert len(seen) == 10, "a megabyte of what was read already, with what each frame takes besides"

    asyncio.run(story())


@pytest.mark.parametrize("reply_bytes", [60 * MIB, 2 * MIB, 100_000])
def test_a_client_that_does_not_read_costs_one_reply_and_a_few_megabytes(reply_bytes: int) -> None:
    async def story() -> None:
        reply = bytes(reply_bytes)
        seen, connection, wire = flood(reply, 200)
        await some_turns()
        assert (len(seen) - 1) * reply_bytes <= 8 * MIB
        assert not wire.reading
        handled = len(seen)
        wire.read_all()
        await some_turns()
        assert handled < len(seen) < 200, "it has read, so it gets more, once"
        while len(seen) < 200:
            wire.read_all()
            await asyncio.sleep(0)
        wire.read_all()
        await some_turns()
        assert wire.reading
        assert connection.sending()[0] == 200 * reply_bytes - wire.unread

    asyncio.run(story())


def test_replies_behind_one_that_waits_are_bounded_too() -> None:
    async def story() -> None:
        first = Later()
        seen: list[int] = []

        def dispatch(frame: memoryview, caller: Caller) -> object:
            seen.append(len(frame))
            return first if len(seen) == 1 else [bytes(MIB)]

        connection, wire = connect(dispatch, receive_bytes=SHARED)
        feed(connection, framed([b"request!"] * 20), [SHARED])
        await some_turns()
        assert len(seen) == 6
        assert not wire.reading
        first.awaited.set_result(Message(text=b"first"))
        await some_turns()
        assert len(seen) == 20
        assert wire.reading
        assert len(wire.written) == 5 + 19 * MIB

    asyncio.run(story())


def test_a_connection_that_is_being_closed_is_cut_off_if_it_is_closed_again() -> None:
    """A peer that reads nothing would keep it, and its replies, for as long as it likes."""

    class Slow(Wire):
        aborted = False

        def abort(self) -> None:
            self.aborted = True

    wire = Slow()
    connection = Connection(lambda frame, caller: None, Keeper())  # type: ignore[arg-type]
    connection.connection_made(wire)
    connection.close()
    assert (wire.closed, wire.aborted) == (True, False)
    connection.close()
    assert wire.aborted


def test_a_bug_in_a_handler_closes_the_connection_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def dispatch(frame: memoryview, caller: Caller) -> None:
        raise KeyError("a bug")

    keeper = Keeper()
    for _ in range(3):
        wire = Wire()
        connection = Connection(dispatch, keeper)  # type: ignore[arg-type]
        connection.connection_made(wire)
        feed(connection, framed([b"request!"]), [48])
        assert wire.closed
    assert [record.exc_info is not None for record in caplog.records] == [True]


# --- unfinished requests --------------------------------------------------------------------------------------------


async def start(keeper: Keeper, size: int, sent: int, pieces: int = 60_000) -> tuple[Connection, Wire]:
    """A connection that has sent so many bytes of a request of `size` bytes, as far as it was read."""
    wire = Wire()
    connection = Connection(lambda frame, caller: None, keeper)  # type: ignore[arg-type]
    connection.connection_made(wire)
    await send(connection, wire, struct.pack(">i", size) + bytes(sent), pieces)
    return connection, wire


async def send(connection: Connection, wire: Wire, data: bytes, pieces: int = 60_000) -> int:
    """How many bytes were read."""
    at = push(connection, wire, data, pieces)
    await asyncio.sleep(0)
    while at < len(data) and wire.reading:
        at += push(connection, wire, data[at:], pieces)
        await asyncio.sleep(0)
    return at


def push(connection: Connection, wire: Wire, data: bytes, pieces: int = 60_000) -> int:
    """As `send`, in one turn."""
    at = 0
    while at < len(data) and wire.reading:
        room = connection.get_buffer(-1)
        part = data[at : at + min(pieces, len(room))]
        room[: len(part)] = part
        connection.buffer_updated(len(part))
        at += len(part)
    return at


def test_unfinished_requests_of_all_connections_share_a_budget() -> None:
    async def story() -> None:
        keeper = Keeper(SHARED, 10 * MIB, queued_bytes=21 * MIB)
        started = [await start(keeper, 10 * MIB, 9 * MIB) for _ in range(8)]
        assert [wire.reading for _, wire in started] == [True, True, *[False] * 6]
        assert keeper.unfinished.held_bytes <= 21 * MIB + 6 * 65_536, "and the beginnings of those that wait"
        assert keeper.unfinished.full

    asyncio.run(story())


def test_one_that_waits_goes_on_when_another_is_done() -> None:
    async def story() -> None:
        keeper = Keeper(SHARED, 10 * MIB, queued_bytes=11 * MIB)
        seen: list[int] = []
        first, wire = await start(keeper, 10 * MIB, 9 * MIB)
        waiting, waiting_wire = await start(keeper, 10 * MIB, 9 * MIB)
        waiting._dispatch = lambda frame, caller: seen.append(len(frame))
        assert not waiting_wire.reading
        read = waiting.receiving()
        assert read[1] == 0, "nothing is expected from it while it is not read"
        await send(first, wire, bytes(MIB))
        assert waiting_wire.reading
        assert not keeper.unfinished.full
        left = 10 * MIB - (waiting._filled - 4)
        assert await send(waiting, waiting_wire, bytes(left)) == left
        assert seen == [10 * MIB]
        assert keeper.unfinished.held_bytes == 0

    asyncio.run(story())


def test_one_that_waits_goes_on_when_another_is_gone() -> None:
    async def story() -> None:
        keeper = Keeper(SHARED, 10 * MIB, queued_bytes=11 * MIB)
        first, _ = await start(keeper, 10 * MIB, 9 * MIB)
        _, waiting_wire = await start(keeper, 10 * MIB, 9 * MIB)
        assert not waiting_wire.reading
        first.connection_lost(None)
        assert waiting_wire.reading

    asyncio.run(story())


def test_requests_of_less_than_64_kib_never_wait() -> None:
    async def story() -> None:
        keeper = Keeper(SHARED, 10 * MIB, queued_bytes=1)
        await start(keeper, 10 * MIB, 9 * MIB)
        _, full = await start(keeper, 10 * MIB, 9 * MIB)
        assert not full.reading
        for size in (100, 5_000, 65_000):
            connection, wire = await start(keeper, size, size - 1, 1000)
            assert wire.reading
            await send(connection, wire, b"x")
            assert wire.reading
            assert connection._own is None

    asyncio.run(story())


def test_a_request_is_counted_as_far_as_it_came() -> None:
    async def story() -> None:
        keeper = Keeper(SHARED, 100 * MIB)
        await start(keeper, 90 * MIB, 100_000)
        assert keeper.unfinished.held_bytes <= 200_000
        connection, wire = await start(keeper, 90 * MIB, 20 * MIB)
        assert keeper.unfinished.held_bytes <= 26 * MIB
        assert len(connection.get_buffer(-1)) <= 4 * MIB
        assert wire.reading

    asyncio.run(story())


def test_a_large_request_arrives_unchanged_however_it_is_read() -> None:
    async def story() -> None:
        seen: list[bytes] = []
        keeper = Keeper(SHARED, 10 * MIB)
        body = bytes(range(251)) * 30_000
        wire = Wire()
        connection = Connection(lambda frame, caller: seen.append(bytes(frame)), keeper)  # type: ignore[arg-type]
        connection.connection_made(wire)
        for pieces in (70_001, 300_000, SHARED):
            await send(connection, wire, framed([body]), pieces)
            await some_turns()
        assert seen == [body] * 3
        assert keeper.unfinished.holds == {}

    asyncio.run(story())


def test_others_have_their_turn_while_a_large_request_is_read() -> None:
    async def story() -> None:
        keeper = Keeper(SHARED, 100 * MIB)
        connection, wire = await start(keeper, 90 * MIB, 4 * MIB - 4)
        read = []
        for _ in range(5):
            read.append(push(connection, wire, bytes(5 * MIB)))
            assert not wire.reading
            await asyncio.sleep(0)
        assert read == [MIB] * 5

    asyncio.run(story())


def test_requests_that_must_not_be_handled_yet_are_counted() -> None:
    async def story() -> None:
        keeper = Keeper(SHARED)
        seen: list[int] = []
        wire = Wire()
        connection = Connection(lambda frame, caller: seen.append(1), keeper)  # type: ignore[arg-type]
        connection.connection_made(wire)
        connection.pause_writing()
        feed(connection, framed([b"request!" * 100] * 300), [SHARED])
        assert not seen
        assert keeper.unfinished.held_bytes == 300 * 804
        connection.resume_writing()
        await some_turns()
        assert len(seen) == 300
        assert keeper.unfinished.holds == {}

    asyncio.run(story())


def test_a_request_of_just_the_size_of_a_spare_buffer_becomes_none() -> None:
    """It was given back as one, so a hostile client could make as many as it liked."""

    async def story() -> None:
        keeper = Keeper(SHARED, 10 * MIB)
        assert keeper.spare_buffers.borrow() is not None, "there was one, and it is lent"
        connection, wire = await start(keeper, SPARE_BYTES - 4, SPARE_BYTES - 5)
        await send(connection, wire, b"x")
        assert connection._own is None
        assert keeper.spare_buffers.free == []

    asyncio.run(story())


def test_a_lack_of_memory_for_a_request_closes_its_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        def lacking(size: int) -> None:
            raise OSError(12, "Cannot allocate memory")

        monkeypatch.setattr("headrace.server.connection.lazy_memory", lacking)
        keeper = Keeper(SHARED, 10 * MIB)
        _, wire = await start(keeper, 10 * MIB, 60_000, 100_000)
        assert not wire.closed
        wire = Wire()
        connection = Connection(lambda frame, caller: None, keeper)  # type: ignore[arg-type]
        connection.connection_made(wire)
        feed(connection, struct.pack(">i", 9 * MIB) + bytes(90_000), [SHARED])
        assert wire.closed
        assert keeper.unfinished.holds == {}

    asyncio.run(story())
