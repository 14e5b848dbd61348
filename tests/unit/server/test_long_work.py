"""What is too long for one turn of the event loop: decoded and encoded elsewhere, one at a time, in the usual order."""

from __future__ import annotations

import asyncio
import gc
import itertools
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.api.contract import Disconnect, Handler, Reply, Request, Steps
from headrace.api.limits import AT_ONCE_ITEMS, MOST_BYTES, MOST_ITEMS
from headrace.api.operations import NONE
from headrace.api.reply_budget import ReplyBudget
from headrace.api.table import Api
from headrace.server import long_work as long_work_module
from headrace.server.connection import Connection
from headrace.server.dispatch import Dispatcher
from headrace.server.long_work import LongWork
from headrace.server.requests_seen import RequestsSeen
from headrace.server.unfinished import UNLIMITED, UnfinishedRequests
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import Message, encode_request
from sim import loop as sim_loop
from sim.computing import SimComputing
from sim.loop import SimClock
from tests.unit.server.test_connection import Keeper, Wire

METADATA, VERSION = 3, 1
LARGE = AT_ONCE_ITEMS + 1


class Thread(SimComputing):
    """Notes what it does, and when."""

    def __init__(self, story: list[str]) -> None:
        super().__init__()
        self._story = story

    async def off_loop(self, work: Callable[..., Any], *args: object) -> Any:
        done = await super().off_loop(work, *args)
        self._story.append(work.__name__)
        return done


class Room:
    """A dispatcher with one API, and connections to it."""

    def __init__(self, handler: Handler) -> None:
        self.story: list[str] = []
        self.unfinished = UnfinishedRequests(UNLIMITED)
        self.replies = ReplyBudget(100 << 20)
        self._handler = handler
        long_work = LongWork(Thread(self.story), self.unfinished, self.replies)
        api = Api(ApiKey.METADATA, 0, 13, NONE, self._handle)
        self._dispatch = Dispatcher({METADATA: api}, RequestsSeen(), SimClock(), long_work)

    def _handle(self, request: Request) -> Reply:
        self.story.append(f"handled {len(request.body.topics)}")
        return self._handler(request)

    def connect(self) -> tuple[Connection, Wire]:
        wire = Wire()
        connection = Connection(self._dispatch, Keeper(1 << 20, 100 << 20))
        connection.connection_made(wire)
        return connection, wire


def frame(items: int, correlation: int = 0) -> bytes:
    """A Metadata of so many topics."""
    body = encode_request(METADATA, VERSION, Message(topics=[Message(name="t")] * items))
    request = struct.pack(">hhih", METADATA, VERSION, correlation, -1) + body
    return struct.pack(">i", len(request)) + request


def send(connection: Connection, data: bytes) -> None:
    at = 0
    while at < len(data):
        room = connection.get_buffer(-1)
        size = min(len(room), len(data) - at)
        room[:size] = data[at : at + size]
        connection.buffer_updated(size)
        at += size


def answer(request: Request) -> Message:
    return Message(brokers=[], controller_id=len(request.body.topics), topics=[])


def answered(wire: Wire) -> list[int]:
    """The correlation ids of the replies."""
    at, found = 0, []
    while at < len(wire.written):
        size, correlation = struct.unpack_from(">ii", wire.written, at)
        found.append(correlation)
        at += 4 + size
    return found


def run(story: Coroutine[Any, Any, None]) -> None:
    sim_loop.run(story, seed=1)


def test_a_long_request_is_decoded_elsewhere_and_those_behind_it_wait() -> None:
    async def story() -> None:
        room = Room(answer)
        connection, wire = room.connect()
        send(connection, frame(LARGE, 1) + frame(3, 2))
        assert (room.story, wire.reading) == ([], False)
        room_of_others = connection.get_buffer(-1)
        room_of_others[:] = bytes(len(room_of_others))  # the receive buffer belongs to others meanwhile
        await asyncio.sleep(1)
        assert room.story == ["decode_request", f"handled {LARGE}", "handled 3"]
        assert (answered(wire), wire.reading) == ([1, 2], True)
        assert struct.unpack_from(">iii", wire.written, 8) == (0, LARGE, 0)

    run(story())


def test_the_usual_request_is_handled_at_once() -> None:
    async def story() -> None:
        room = Room(answer)
        connection, _ = room.connect()
        send(connection, frame(AT_ONCE_ITEMS))
        assert room.story == [f"handled {AT_ONCE_ITEMS}"]

    run(story())


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (frame(MOST_ITEMS + 1), "metadata v1: a request with more than 250,000 items"),
        (frame(1)[:4].replace(frame(1)[:4], struct.pack(">i", MOST_BYTES + 1)) + frame(1)[4:] + bytes(MOST_BYTES),
         "Metadata: a request of 16,777,217 bytes; the limit is 16,777,216"),
    ],
    ids=["items", "bytes"],
)  # fmt: skip
def test_a_request_beyond_the_limits_closes_the_connection(
    data: bytes, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        room = Room(answer)
        connection, wire = room.connect()
        send(connection, data)
        await asyncio.sleep(1)
        assert wire.closed
        assert wire.written == b""
        assert room.unfinished.held_bytes == 0
        assert [record.message.split(": ", 1)[1] for record in caplog.records] == [complaint]
        assert not any(line.startswith("handled") for line in room.story)

    run(story())


def test_one_long_request_is_in_memory_at_a_time() -> None:
    async def story() -> None:
        room = Room(lambda request: Message(topics=[Message(name=str(n)) for n in range(LARGE)]))
        wires = []
        for _ in range(3):
            connection, wire = room.connect()
            send(connection, frame(LARGE))
            wires.append(wire)
        copies = 3 * (len(frame(LARGE)) - 4)
        await asyncio.sleep(0)
        assert room.unfinished.held_bytes == copies, "frames that wait count as unfinished requests"
        await asyncio.sleep(1)
        assert room.story == 3 * ["decode_request", f"handled {LARGE}", "reply_frame"]
        assert [answered(wire) for wire in wires] == 3 * [[0]]
        assert room.unfinished.held_bytes == 0

    run(story())


def test_steps_leave_a_turn_to_others_and_hold_the_connection() -> None:
    def handler(request: Request) -> Reply:
        return steps(request) if len(request.body.topics) == 2 else answer(request)

    def steps(request: Request) -> Steps[Message]:
        for number in range(3):
            told.append(f"piece {number}")
            yield
        return answer(request)

    async def others() -> None:
        for _ in range(6):
            told.append("others")
            await asyncio.sleep(0)

    told: list[str] = []

    async def story() -> None:
        room = Room(handler)
        connection, wire = room.connect()
        task = asyncio.ensure_future(others())
        send(connection, frame(2, 1) + frame(1, 2))
        await asyncio.sleep(1)
        await task
        pieces = [told.index(f"piece {number}") for number in range(3)]
        assert all("others" in told[a:b] for a, b in itertools.pairwise(pieces))
        assert room.story == ["handled 2", "handled 1"]
        assert answered(wire) == [1, 2]

    run(story())


def test_what_an_awaitable_gives_may_be_steps_too() -> None:
    def steps(request: Request) -> Steps[Message]:
        yield
        return answer(request)

    async def later(request: Request) -> Steps[Message]:
        await asyncio.sleep(1)
        return steps(request)

    async def story() -> None:
        room = Room(later)
        connection, wire = room.connect()
        send(connection, frame(1, 1) + frame(2, 2))
        assert room.story == ["handled 1", "handled 2"], "it is stage two, so others go on"
        await asyncio.sleep(2)
        assert answered(wire) == [1, 2]

    run(story())


def test_a_long_response_counts_as_memory_until_it_is_sent() -> None:
    async def story() -> None:
        room = Room(lambda request: Message(topics=[Message(name=str(n)) for n in range(LARGE)]))
        connection, wire = room.connect()
        kept: list[Any] = []
        wire.writelines = kept.extend  # type: ignore[method-assign]  # a socket that takes nothing yet
        send(connection, frame(1))
        await asyncio.sleep(1)
        assert room.story == ["handled 1", "reply_frame"]
        assert room.replies.held_bytes == sum(map(len, kept)) > LARGE
        kept.clear()
        assert room.replies.held_bytes == 0

    run(story())


def test_requests_whose_answers_wait_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work_module, "REQUESTS_BYTES", 20 << 20)

    async def story() -> None:
        answers: list[asyncio.Future[Message]] = []

        def later(request: Request) -> Reply:
            answers.append(asyncio.get_running_loop().create_future())
            return answers[-1]

        room = Room(later)
        connections = [room.connect() for _ in range(3)]
        for connection, _ in connections:
            send(connection, frame(LARGE))
        await asyncio.sleep(1)
        assert room.story.count(f"handled {LARGE}") == 1, "there is no room for a second"
        answers[0].set_result(Message(topics=[]))
        await asyncio.sleep(1)
        assert room.story.count(f"handled {LARGE}") == 2
        connections[1][0].connection_lost(None)
        await asyncio.sleep(1)
        assert room.story.count(f"handled {LARGE}") == 3, "who is gone has given it back"

    run(story())


def test_a_request_that_fails_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work_module, "REQUESTS_BYTES", 20 << 20)

    async def fails_later() -> Message:
        raise Disconnect("later")

    async def story() -> None:
        def fail(request: Request) -> Reply:
            if not room.story.count(f"handled {LARGE}") % 2:
                return fails_later()
            raise Disconnect("at once")

        room = Room(fail)
        gc.disable()  # an exception and its frames keep each other
        try:
            for number in range(1, 5):
                connection, wire = room.connect()
                send(connection, frame(LARGE))
                await asyncio.sleep(1)
                assert room.story.count(f"handled {LARGE}") == number
                assert wire.closed
        finally:
            gc.enable()

    run(story())


def test_a_connection_that_is_gone_takes_nothing_with_it() -> None:
    async def story() -> None:
        room = Room(answer)
        for turns in range(5):
            connection, _ = room.connect()
            send(connection, frame(LARGE))
            for _ in range(turns):
                await asyncio.sleep(0)
            connection.connection_lost(None)
        await asyncio.sleep(1)
        assert room.unfinished.held_bytes == 0
        connection, wire = room.connect()
        send(connection, frame(LARGE, 7))
        await asyncio.sleep(1)
        assert answered(wire) == [7]

    run(story())
