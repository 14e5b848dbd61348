"""A connection hands over whole frames however the bytes arrive, and replies leave in the order of the requests."""

from __future__ import annotations

import asyncio
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.api.contract import Caller, Disconnect
from headrace.server.answering import Buffer
from headrace.server.complaints import Complaints
from headrace.server.connection import Connection
from headrace.server.spare_buffers import SpareBuffers
from headrace.server.turns import Turns
from headrace.server.unfinished import UNLIMITED, UnfinishedRequests
from headrace.server.vigil import Vigil
from headrace.wire.messages import Message


class Keeper:
    """A listener's side of the contract, with a small receive buffer so that frames outgrow it."""

    def __init__(self, receive_bytes: int = 64, max_frame_bytes: int = 100_000, queued_bytes: int = UNLIMITED) -> None:
        self.name = "INSIDE"
        self.receive_buffer = memoryview(bytearray(receive_bytes))
        self.max_frame_bytes = max_frame_bytes
        self.spare_buffers = SpareBuffers(1)
        self.unfinished = UnfinishedRequests(queued_bytes)
        self.complaints = Complaints(self.monotonic)
        self.turns = Turns()

    def entered(self, connection: Connection) -> bool:
        return True

    def left(self, connection: Connection) -> None:
        pass

    def monotonic(self) -> float:
        return 0.0


class Wire(asyncio.Transport):
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False
        self.reading = True

    def writelines(self, chunks: list[Buffer]) -> None:  # type: ignore[override]
        for chunk in chunks:
            self.written += chunk

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Later:
    holds = False
    kept_bytes = 0

    def __init__(self) -> None:
        self.awaited: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def finish(self, message: Message) -> list[Buffer]:
        return [message.text]


class Twice(Later):
    """Knows only that somebody else will know."""

    def __init__(self, other: Later) -> None:
        super().__init__()
        self._other = other

    def finish(self, message: Message) -> list[Buffer] | Later:  # type: ignore[override]
        return self._other


def connect(dispatch: object, **limits: int) -> tuple[Connection, Wire]:
    wire = Wire()
    connection = Connection(dispatch, Keeper(**limits))  # type: ignore[arg-type]
    connection.connection_made(wire)
    return connection, wire


def feed(connection: Connection, data: bytes, pieces: list[int]) -> None:
    at = turn = 0
    while at < len(data):
        room = connection.get_buffer(-1)
        assert len(room) > 0
        size = min(len(room), pieces[turn % len(pieces)], len(data) - at)
        room[:size] = data[at : at + size]
        connection.buffer_updated(size)
        at += size
        turn += 1


async def pour(connection: Connection, wire: Wire, data: bytes, pieces: list[int]) -> None:
    """As `feed`, by somebody who waits when it is asked to."""
    at = 0
    for piece in itertools.cycle(pieces):
        size = min(len(connection.get_buffer(-1)), piece, len(data) - at)
        feed(connection, data[at : at + size], [size])
        at += size
        while not wire.reading:
            await asyncio.sleep(0)
        if at == len(data):
            return


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@given(
    st.lists(st.binary(min_size=8, max_size=400), min_size=1, max_size=8),
    st.lists(st.integers(1, 200), min_size=1, max_size=6),
)
def test_frames_survive_any_cutting_of_the_stream(bodies: list[bytes], pieces: list[int]) -> None:
    seen: list[bytes] = []

    def dispatch(frame: memoryview, caller: Caller) -> list[Buffer]:
        seen.append(bytes(frame))
        return [bytes(frame)]

    async def story() -> bytes:
        connection, wire = connect(dispatch)
        feed(connection, framed(bodies), pieces)
        await asyncio.sleep(0)
        return bytes(wire.written)

    assert asyncio.run(story()) == b"".join(bodies)
    assert seen == bodies


SHARED = 512 * 1024


@given(
    st.lists(st.sampled_from([8, 5000, 70_000, 300_000, 900_000, 2_500_000]), min_size=1, max_size=6),
    st.lists(st.sampled_from([1000, 60_000, 65_536, SHARED, 3_000_000]), min_size=1, max_size=4),
)
def test_large_frames_survive_it_too_among_small_ones(sizes: list[int], pieces: list[int]) -> None:
    seen: list[tuple[int, int]] = []

    def dispatch(frame: memoryview, caller: Caller) -> None:
        assert bytes(frame) == bytes([frame[0]]) * len(frame)
        seen.append((frame[0], len(frame)))

    async def story() -> None:
        connection, wire = connect(dispatch, receive_bytes=SHARED, max_frame_bytes=10_000_000)
        await pour(connection, wire, framed([bytes([number]) * size for number, size in enumerate(sizes)]), pieces)
        assert seen == list(enumerate(sizes))
        assert connection.get_buffer(-1).obj is connection._keeper.receive_buffer.obj, "nothing is left"

    asyncio.run(story())


def test_only_the_beginning_of_a_large_frame_after_another_has_to_move() -> None:
    async def story() -> None:
        connection, wire = connect(lambda frame, peer: None, receive_bytes=SHARED, max_frame_bytes=10_000_000)
        body = b"x" * 900_000
        await pour(connection, wire, framed([body]), [SHARED])
        for _ in range(2):
            beginning = connection.get_buffer(-1)
            assert len(beginning) == 65_536
            beginning[:] = framed([body])[:65_536]
            connection.buffer_updated(65_536)
            rest = connection.get_buffer(-1)
            assert len(rest) == len(body) + 4 - 65_536, "and not a byte of the next frame"
            connection.buffer_updated(len(rest))
            await asyncio.sleep(0)
        await pour(connection, wire, framed([b"request!"]), [SHARED])
        assert len(connection.get_buffer(-1)) == SHARED, "small ones are read many at a time again"

    asyncio.run(story())


def test_who_sends_without_a_pause_lets_others_have_their_turn() -> None:
    async def story() -> None:
        connection, wire = connect(lambda frame, peer: None, receive_bytes=SHARED, max_frame_bytes=10_000_000)
        for _ in range(3):
            feed(connection, framed([b"x" * 100_000] * 4), [SHARED])
            assert wire.reading, "not yet half a megabyte"
            feed(connection, framed([b"x" * 100_000]), [SHARED])
            assert not wire.reading
            await asyncio.sleep(0)
            assert wire.reading
        feed(connection, framed([b"x" * 600_000]), [SHARED])
        connection.pause_writing()  # one that does not read its replies has to wait for more than a turn
        await asyncio.sleep(0)
        assert not wire.reading
        connection.resume_writing()
        assert wire.reading

    asyncio.run(story())


def test_many_small_frames_are_handled_some_dozens_a_turn_and_in_order() -> None:
    async def story() -> None:
        seen: list[int] = []
        connection, wire = connect(lambda frame, peer: seen.append(frame[0]), receive_bytes=SHARED)
        feed(connection, framed([bytes([number]) * 50 for number in range(200)]) + b"\x00\x00", [SHARED])
        turns = []
        while not wire.reading:
            turns.append(len(seen))
            await asyncio.sleep(0)
        assert turns == [64, 128, 192]
        feed(connection, b"\x00\x08" + bytes([200]) * 8, [SHARED])
        assert seen == list(range(201))
        for number in range(500):
            feed(connection, framed([bytes([number % 250]) * 50]), [SHARED])
            assert wire.reading, "who sends one at a time is never held up"

    asyncio.run(story())


def test_who_stops_reading_replies_amid_a_flood_goes_on_where_it_was() -> None:
    async def story() -> None:
        seen: list[int] = []

        def dispatch(frame: memoryview, caller: Caller) -> list[Buffer]:
            seen.append(frame[0])
            if len(seen) in (30, 64, 65, 100):
                connection.pause_writing()
            return [b"reply"]

        connection, wire = connect(dispatch, receive_bytes=SHARED)
        feed(connection, framed([bytes([number]) * 50 for number in range(200)]), [SHARED])
        stops = []
        for _ in range(20):
            stops.append(len(seen))
            await asyncio.sleep(0)
            if connection._paused_by_peer:
                connection.resume_writing()
        assert seen == list(range(200))
        assert stops[:2] == [30, 64], "each turn ends by one or the other"
        assert max(after - before for before, after in itertools.pairwise(stops)) <= 64
        assert wire.reading

    asyncio.run(story())


def test_a_finished_frame_leaves_no_buffer_behind() -> None:
    connection, _ = connect(lambda frame, peer: None)
    feed(connection, framed([b"x" * 5000]), [50])
    assert len(connection.get_buffer(-1)) == 64  # the shared one again


def test_the_buffer_of_an_unfinished_frame_grows_with_what_arrived_not_with_what_was_promised() -> None:
    connection, _ = connect(lambda frame, peer: None, max_frame_bytes=100_000_000)
    feed(connection, struct.pack(">i", 90_000_000) + b"x" * 10_000, [64])
    assert len(connection.get_buffer(-1)) < 64_000


def test_a_large_frame_borrows_a_spare_buffer_and_gives_it_back() -> None:
    seen: list[int] = []

    async def story() -> None:
        connection, wire = connect(
            lambda frame, peer: seen.append(len(frame)), max_frame_bytes=10_000_000, receive_bytes=500_000
        )
        keeper = connection._keeper
        feed(connection, framed([b"x" * 1_500_000])[:-1], [400_000])
        assert keeper.spare_buffers.borrow() is None
        await pour(connection, wire, b"x" + framed([b"y" * 100]), [400_000])
        assert seen == [1_500_000, 100]
        assert len(keeper.spare_buffers.free) == 1

    asyncio.run(story())


@pytest.mark.parametrize("size", [-1, 0, 7, 100_001, 2**31 - 1])
def test_a_length_that_lies_closes_the_connection(size: int) -> None:
    connection, wire = connect(lambda frame, peer: None)
    feed(connection, struct.pack(">i", size) + b"abcd", [64])
    assert wire.closed


def test_a_handler_can_ask_for_the_connection_to_be_closed() -> None:
    def dispatch(frame: memoryview, caller: Caller) -> None:
        raise Disconnect("no such API")

    connection, wire = connect(dispatch)
    feed(connection, framed([b"x" * 8, b"y" * 8]), [64])
    assert wire.closed


def test_replies_leave_in_the_order_of_the_requests() -> None:
    async def story() -> bytes:
        slow = [Later(), Later()]
        replies: list[object] = [slow[0], [b"second "], slow[1], [b"fourth "]]
        connection, wire = connect(lambda frame, peer: replies.pop(0))
        feed(connection, framed([b"request!"] * 4), [48])
        assert wire.written == b""
        slow[1].awaited.set_result(Message(text=b"third "))
        await asyncio.sleep(0)
        assert wire.written == b""
        slow[0].awaited.set_result(Message(text=b"first "))
        for _ in range(3):
            await asyncio.sleep(0)
        return bytes(wire.written)

    assert asyncio.run(story()) == b"first second third fourth "


def test_a_reply_that_waits_once_more_keeps_its_place() -> None:
    async def story() -> None:
        other = Later()
        first, second = Twice(other), Later()
        replies = iter([first, second])
        connection, wire = connect(lambda frame, peer: next(replies))
        feed(connection, framed([b"12345678", b"abcdefgh"]), [48])
        second.awaited.set_result(Message(text=b"two"))
        first.awaited.set_result(Message())
        await asyncio.sleep(0.01)
        assert not wire.written
        other.awaited.set_result(Message(text=b"one"))
        await asyncio.sleep(0.01)
        assert bytes(wire.written) == b"onetwo"

    asyncio.run(story())


def test_a_reply_that_fails_closes_the_connection() -> None:
    class Broken(Later):
        def finish(self, message: Message) -> list[Buffer]:
            raise RuntimeError("broken")

    async def story() -> bool:
        broken = Broken()
        connection, wire = connect(lambda frame, peer: broken)
        feed(connection, framed([b"request!"]), [48])
        broken.awaited.set_result(Message())
        await asyncio.sleep(0.01)
        return wire.closed

    assert asyncio.run(story())


def test_a_peer_that_does_not_read_its_replies_is_not_read_from() -> None:
    seen: list[bytes] = []

    def dispatch(frame: memoryview, caller: Caller) -> list[Buffer]:
        seen.append(bytes(frame))
        if len(seen) == 2:
            connections[0].pause_writing()  # the transport's buffer is full
        return [b"reply"]

    connections: list[Connection] = []

    async def story() -> None:
        connection, wire = connect(dispatch, receive_bytes=512)
        connections.append(connection)
        feed(connection, framed([b"%08d" % n for n in range(10)]), [512])
        assert len(seen) == 2
        assert not wire.reading
        connection.resume_writing()
        assert len(seen) == 10
        assert wire.reading

    asyncio.run(story())


def test_a_request_without_a_reply_holds_up_nobody() -> None:
    async def story() -> bytes:
        replies: list[object] = [None, [b"reply"]]
        connection, wire = connect(lambda frame, peer: replies.pop(0))
        feed(connection, framed([b"request!"] * 2), [48])
        await asyncio.sleep(0)
        return bytes(wire.written)

    assert asyncio.run(story()) == b"reply"


def test_replies_of_several_connections_leave_when_all_their_requests_are_handled() -> None:
    async def story() -> list[bytes]:
        keeper, wires = Keeper(), [Wire(), Wire()]
        for wire in wires:
            connection = Connection(lambda frame, peer: [b"reply"], keeper)  # type: ignore[arg-type]
            connection.connection_made(wire)
            feed(connection, framed([b"request!"]), [48])
        assert [bytes(wire.written) for wire in wires] == [b"", b""]
        await asyncio.sleep(0)
        return [bytes(wire.written) for wire in wires]

    assert asyncio.run(story()) == [b"reply", b"reply"]


def test_a_client_that_is_alone_gets_its_replies_at_once() -> None:
    async def story() -> None:
        keeper, wires = Keeper(), [Wire(), Wire()]
        alone, other = (Connection(lambda frame, peer: [b"reply"], keeper) for _ in wires)  # type: ignore[arg-type]
        alone.connection_made(wires[0])
        other.connection_made(wires[1])
        feed(alone, framed([b"request!"]), [48])
        await asyncio.sleep(0)
        feed(alone, framed([b"request!"]), [48])
        assert wires[0].written == b"replyreply"
        feed(other, framed([b"request!"]), [48])
        feed(alone, framed([b"request!"]), [48])
        assert (wires[0].written, wires[1].written) == (b"replyreply", b""), "there are two now"
        await asyncio.sleep(0)
        assert (wires[0].written, wires[1].written) == (b"replyreplyreply", b"reply")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("request_bytes", "reply", "kept_awake"),
    [
        (100, [b"reply"], True),
        (100, [b"head", b"records"], False),
        (5000, [b"reply"], False),
        (9000, [b"reply"], False),  # in two pieces, the second of them small
    ],
)
def test_only_a_client_that_sends_and_gets_little_keeps_the_loop_awake(
    request_bytes: int, reply: list[Buffer], kept_awake: bool
) -> None:
    async def story() -> None:
        looks: list[object] = []
        keeper = Keeper(receive_bytes=8192)
        keeper.turns = Turns(Vigil(1.0, lambda: 0.0, looks.append, lambda: None))
        connection = Connection(lambda frame, peer: list(reply), keeper)  # type: ignore[arg-type]
        connection.connection_made(Wire())
        for _ in range(2):
            assert not looks, "the first request does not tell that the client is alone"
            feed(connection, framed([b"x" * request_bytes]), [8192])
            await asyncio.sleep(0)
        assert bool(looks) == kept_awake

    asyncio.run(story())


def test_a_connection_that_cannot_be_written_to_holds_back_no_other() -> None:
    class Broken(Wire):
        def writelines(self, chunks: list[Buffer]) -> None:  # type: ignore[override]
            raise RuntimeError("unable to perform operation; the handler is closed")

    async def story() -> bytes:
        keeper, wires = Keeper(), [Broken(), Wire()]
        for wire in wires:
            connection = Connection(lambda frame, peer: [b"reply"], keeper)  # type: ignore[arg-type]
            connection.connection_made(wire)
            feed(connection, framed([b"request!"]), [48])
        await asyncio.sleep(0)
        return bytes(wires[1].written)

    assert asyncio.run(story()) == b"reply"


def test_replies_to_many_requests_at_once_do_not_wait_for_the_end_of_the_turn() -> None:
    async def story() -> int:
        connection, wire = connect(lambda frame, peer: [b"reply"], receive_bytes=512)
        feed(connection, framed([b"request!"] * 20), [512])
        return len(wire.written)

    assert asyncio.run(story()) == 20 * len(b"reply")


def test_what_was_answered_leaves_before_a_connection_is_closed() -> None:
    async def story() -> bytes:
        connection, wire = connect(lambda frame, peer: [b"reply"])
        feed(connection, framed([b"request!"]), [48])
        connection.close()
        assert wire.closed
        return bytes(wire.written)

    assert asyncio.run(story()) == b"reply"


def test_a_held_request_is_over_before_the_next_one_of_its_connection_is_handled() -> None:
    async def story() -> None:
        before, held, waits = Later(), Later(), Later()
        held.holds, held.finish = True, lambda _: waits  # type: ignore[method-assign, assignment, return-value]
        replies: list[object] = [before, held, [b"third "], [b"fourth "]]
        connection, wire = connect(lambda frame, peer: replies.pop(0))
        feed(connection, framed([b"request!"] * 3), [48])
        assert len(replies) == 2, "the third is not handled"
        assert not wire.reading
        before.awaited.set_result(Message(text=b"first "))
        await asyncio.sleep(0.01)
        assert len(replies) == 2, "the one that is held is not over"
        held.awaited.set_result(Message())
        await asyncio.sleep(0.01)
        assert len(replies) == 1, "it waits for something that holds nobody up"
        assert wire.reading
        feed(connection, framed([b"request!"]), [48])
        waits.awaited.set_result(Message(text=b"second "))
        await asyncio.sleep(0.01)
        assert bytes(wire.written) == b"first second third fourth "

    asyncio.run(story())


@pytest.mark.parametrize("how", ["answered", "failed", "gone"])
def test_the_copy_of_a_held_request_counts_while_it_is_handled(how: str) -> None:
    async def story() -> None:
        held = Later()
        held.holds, held.kept_bytes = True, 1_000_000
        connection, _ = connect(lambda frame, peer: held, queued_bytes=500_000)
        unfinished = connection._keeper.unfinished
        feed(connection, framed([b"request!"]), [48])
        assert unfinished.held_bytes == 1_000_000
        assert unfinished.full, "others read less at a time"
        if how == "answered":
            held.awaited.set_result(Message(text=b"reply"))
        elif how == "failed":
            held.awaited.set_exception(Disconnect("it makes no sense"))
        await asyncio.sleep(0.01)
        if how != "answered":
            connection.connection_lost(None)
            await asyncio.sleep(0.01)
        assert unfinished.held_bytes == 0
        assert not unfinished.full
        assert not unfinished.holds

    asyncio.run(story())


def test_a_held_request_that_fails_closes_its_connection_only() -> None:
    async def story() -> None:
        held = Later()
        held.holds = True
        connection, wire = connect(lambda frame, peer: held)
        feed(connection, framed([b"request!"]), [48])
        held.awaited.set_exception(Disconnect("it makes no sense"))
        await asyncio.sleep(0.01)
        assert wire.closed

    asyncio.run(story())
