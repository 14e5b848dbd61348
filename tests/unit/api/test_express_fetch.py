"""The express lane of Fetch answers byte for byte what the full path answers, and leaves everything else to it."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.api import express_fetch
from headrace.api.contract import Caller, Peer, Reply, Request
from headrace.api.express_fetch import ExpressFetch, LongPoll
from headrace.api.fetch import Fetch
from headrace.api.fetch_reading import FetchReading
from headrace.api.fetch_sessions import FetchSessions
from headrace.api.gate import Gate
from headrace.api.leader_hints import LeaderHints
from headrace.api.reply_budget import ReplyBudget
from headrace.api.view_fetch import Views
from headrace.log.logs import Logs
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.model.transaction_end import TransactionEnd
from headrace.replicas.host import ReplicaHost
from headrace.wire import frames
from headrace.wire.batches import TRANSACTIONAL
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message, decode_request, encode_request, encode_response, header_version
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from headrace.world.entropy import SeededEntropy
from sim import loop as sim_loop
from sim.computing import SimComputing
from sim.disk import SimDisk
from sim.loop import SimClock
from tests.conftest import SOAKING
from tests.unit.api.express_twins import TWINS, working_with
from tests.unit.log.batches import batch

FETCH = 1
VERSIONS = range(4, 19)
IDS = {"orders": uuid.UUID(int=5), "o" * 200: uuid.UUID(int=6), "aborted": uuid.UUID(int=7)}
PARTITIONS = 4
MAX_BYTES = 5000
CALLER = Caller(Peer("", 0, "", 0))


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__, scope="module", autouse=True)
def _each_twin(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from working_with(request.param, express_fetch, "read_fetch", "write_fetch")


class Room:
    """A broker with three topics. Each has an empty partition, and others with more and more records."""

    def __init__(self, gate: Gate | None = None) -> None:
        gate = gate or Gate()
        clock, self.disk = SimClock(), SimDisk()
        self.disk.make_dirs(Path("/data"))
        self.host = ReplicaHost(1, Logs(self.disk, clock, Path("/data")), clock, {})
        states = tuple(PartitionImage(index, (1,), (1,), 1, 3, 0, ()) for index in range(PARTITIONS))
        topics = [TopicImage(name, topic_id, states, {}) for name, topic_id in IDS.items()]
        image = ClusterImage("c", 1, {1: BrokerImage(1, "h", 1, None, 1)}).with_topics(topics)
        self.host.follow(ClusterImage("", -1), image)
        for name in IDS:
            for index in range(1, PARTITIONS):
                for count in range(3 * index):
                    self.host.find(name, index).append(batch(count + 1, at=clock.now_ms(), value=b"v" * 40 * index))
        self._abort("aborted", 1, clock.now_ms())
        sessions = FetchSessions(clock, SeededEntropy(1), 10, 10_000)
        hints = LeaderHints(lambda: image, lambda _, broker: (broker.host, broker.port))
        self.budget = ReplyBudget(1 << 20)
        reading = FetchReading(self.host, self.disk.off_loop, MAX_BYTES, hints, self.budget)
        self.full = Fetch(
            self.host, gate, sessions, clock, SeededEntropy(2), reading, reading, Views(SimComputing(), clock)
        )
        self.express = ExpressFetch(self.host, gate, clock, MAX_BYTES, self.budget)

    def _abort(self, topic: str, index: int, now_ms: int) -> None:
        partition = self.host.find(topic, index)
        records = encode_batch(
            [Record(0, now_ms, b"k", b"v")], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0
        )
        partition.append(memoryview(records), transactional=True)
        partition.append_end(TransactionEnd(7, 0, 0, False, 0))

    def both(self, version: int, body: Message) -> tuple[bytes | LongPoll | None, Reply]:
        """What the lane answers, and what the full path does."""
        frame, at = frame_of(version, body)
        lane = self.express(frame, version, at, 5, CALLER)
        asked = decode_request(FETCH, version, frame, at)
        frame[at:] = bytes(len(frame) - at)  # as the next request in the same buffer does
        full = self.full(Request(FETCH, version, "", asked, CALLER))
        return b"".join(lane) if isinstance(lane, list) else lane, full

    def append(self, topic: str, index: int, count: int = 1) -> None:
        self.host.find(topic, index).append(batch(count, at=0, value=b"new"))


def in_room(story: Coroutine[Any, Any, None]) -> None:
    sim_loop.run(story, 1)


def frame_of(version: int, body: Message) -> tuple[memoryview, int]:
    tags = b"\x00" if header_version(FETCH, version, "request") >= 2 else b""
    head = struct.pack(">hhih", FETCH, version, 5, 3) + b"raw" + tags
    return memoryview(bytearray(head + encode_request(FETCH, version, body))), len(head)


def encoded(version: int, response: Message) -> bytes:
    body = frames.response_prefix(FETCH, version, 5) + b"".join(encode_response(FETCH, version, response))
    return struct.pack(">i", len(body)) + body


def is_plain(response: Message) -> bool:
    """Whether it has records or nothing for each partition, and no news of any other kind."""
    parts = [response, *(partition for topic in response.responses for partition in topic.partitions)]
    return not any(vars(part).get("error_code", 0) or "diverging_epoch" in vars(part) for part in parts)


def partition(index: int = 1, **changed: Any) -> Message:
    fields = {
        "partition": index, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
        "log_start_offset": -1, "partition_max_bytes": 1000,
    }  # fmt: skip
    return Message(**fields | changed)


def topic(name: str = "orders", *partitions: Message) -> Message:
    return Message(topic=name, topic_id=IDS.get(name, uuid.UUID(int=99)), partitions=list(partitions or [partition()]))


def request(*topics: Message, **changed: Any) -> Message:
    fields: dict[str, Any] = {
        "replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1,
        "session_id": 0, "session_epoch": -1, "topics": list(topics or [topic()]), "forgotten_topics_data": [],
        "rack_id": "",
    }  # fmt: skip
    return Message(**fields | changed)


def index_of(asked: Message) -> int:
    index: int = asked.partition
    return index


partitions = st.builds(
    partition,
    st.integers(0, PARTITIONS - 1),
    current_leader_epoch=st.sampled_from([-1, 3]),
    fetch_offset=st.integers(0, 6),
    last_fetched_epoch=st.sampled_from([-1, 3]),
    log_start_offset=st.sampled_from([-1, 0]),
    partition_max_bytes=st.sampled_from([0, 1, 300, 2000, 1 << 20]),
)
requests = st.builds(
    request,
    st.builds(lambda some: topic("orders", *some), st.lists(partitions, min_size=1, max_size=4, unique_by=index_of)),
    max_wait_ms=st.sampled_from([0, 500]),
    min_bytes=st.sampled_from([0, 1, 200, 1 << 19]),
    max_bytes=st.sampled_from([0, 1, 500, 1 << 20]),
    isolation_level=st.sampled_from([0, 1]),
)


versions = st.sampled_from(VERSIONS)


@given(versions, requests)
@settings(max_examples=2000 if SOAKING else 150)
def test_the_usual_request_is_answered_as_by_the_full_path_and_any_other_is_left_to_it(
    version: int, body: Message
) -> None:
    async def story() -> None:
        lane, full = Room().both(version, body)
        if not isinstance(full, Message):
            assert isinstance(lane, LongPoll), "both wait"
        elif is_plain(full):
            assert lane == encoded(version, full)
        else:
            assert lane is None, "the full path refuses, or has other news"

    in_room(story())


@given(versions, requests, st.lists(st.integers(0, PARTITIONS - 1), max_size=4))
@settings(max_examples=2000 if SOAKING else 100)
def test_a_request_that_waits_is_answered_as_by_the_full_path(version: int, body: Message, appends: list[int]) -> None:
    async def story() -> None:
        room = Room()
        lane, full = room.both(version, body)
        if isinstance(full, Message) or full is None:
            return
        assert isinstance(lane, LongPoll)
        waiting = asyncio.ensure_future(full)
        for index in appends:
            await asyncio.sleep(0.01)
            assert lane.due.done() == waiting.done()
            if waiting.done():
                break  # what comes from now on is in the answer of the one that is asked later
            room.append("orders", index)
        if not waiting.done():
            await asyncio.sleep(1)
        answer = await waiting
        assert lane.due.done()
        assert b"".join(lane.answer() or []) == encoded(version, answer)

    in_room(story())


def test_a_request_waits_for_as_much_as_it_asks_for() -> None:
    async def story() -> None:
        room = Room()
        frame, at = frame_of(11, request(topic("orders", partition(0)), min_bytes=100))
        poll = room.express(frame, 11, at, 5, CALLER)
        assert isinstance(poll, LongPoll)
        room.append("orders", 0)
        await asyncio.sleep(0.1)
        assert not poll.due.done(), "one batch is not enough"
        room.append("orders", 0)
        assert poll.due.done()

    in_room(story())


def test_a_request_waits_no_longer_than_it_says() -> None:
    async def story() -> None:
        frame, at = frame_of(11, request(topic("orders", partition(0)), max_wait_ms=500))
        poll = Room().express(frame, 11, at, 5, CALLER)
        assert isinstance(poll, LongPoll)
        await asyncio.sleep(0.49)
        assert not poll.due.done()
        await asyncio.sleep(0.02)
        assert poll.due.done()

    in_room(story())


@pytest.mark.parametrize("isolation", [0, 1])
def test_who_went_away_is_not_told_any_more(isolation: int) -> None:
    async def story() -> None:
        room = Room()
        frame, at = frame_of(11, request(topic("orders", partition(0)), isolation_level=isolation))
        polls = [room.express(frame, 11, at, number, CALLER) for number in range(2)]
        gone, there = [poll for poll in polls if isinstance(poll, LongPoll)]
        gone.due.cancel()
        await asyncio.sleep(0)
        room.append("orders", 0)
        assert gone.due.cancelled()
        assert there.due.done()

    in_room(story())


def test_a_request_whose_leader_resigns_while_it_waits_is_left_to_the_full_path() -> None:
    async def story() -> None:
        room = Room()
        frame, at = frame_of(11, request(topic("orders", partition(0))))
        poll = room.express(frame, 11, at, 5, CALLER)
        assert isinstance(poll, LongPoll)
        room.host.find("orders", 0).resign(KafkaError(ErrorCode.not_leader_or_follower))
        assert poll.due.done()
        assert poll.answer() is None

    in_room(story())


@pytest.mark.parametrize("version", VERSIONS)
def test_two_topics_are_answered_together(version: int) -> None:
    async def story() -> None:
        lane, full = Room().both(version, request(topic("aborted", partition(2)), topic("orders", partition(1))))
        assert isinstance(full, Message)
        assert lane == encoded(version, full)

    in_room(story())


def unusual() -> Iterator[tuple[str, int, Message]]:
    yield "a replica", 4, request(replica_id=2)
    yield "a new session", 7, request(session_epoch=0)
    yield "a known session", 7, request(session_id=3, session_epoch=1)
    yield (
        "something is forgotten",
        7,
        request(forgotten_topics_data=[Message(topic="orders", topic_id=IDS["orders"], partitions=[1])]),
    )
    yield "a rack", 11, request(rack_id="here")
    yield "no topic", 4, request(topics=[])
    yield "an unknown topic", 4, request(topic("nowhere"))
    yield "an unknown partition", 4, request(topic("orders", partition(99)))
    yield "an offset out of range", 4, request(topic("orders", partition(fetch_offset=1000)))
    yield "an old epoch", 9, request(topic("orders", partition(current_leader_epoch=2)))
    yield "another branch", 12, request(topic("orders", partition(fetch_offset=1, last_fetched_epoch=2)))
    yield "aborted transactions", 4, request(topic("aborted"))
    yield "a partition twice", 4, request(topic("orders", partition(2), partition(1), partition(2)))
    yield "a topic with a partition twice", 4, request(topic("orders", partition(2)), topic("orders", partition(2)))
    yield "no partition", 4, request(Message(topic="orders", topic_id=IDS["orders"], partitions=[]))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("what", "since", "body"), list(unusual()))
def test_whatever_is_unusual_takes_the_full_path(version: int, what: str, since: int, body: Message) -> None:
    async def story() -> None:
        if version >= since and (what != "a replica" or version < 15):
            frame, at = frame_of(version, body)
            assert Room().express(frame, version, at, 5, CALLER) is None, what

    in_room(story())


@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_partition_that_is_named_twice_the_last_one_counts(version: int) -> None:
    async def story() -> None:
        body = request(topic("orders", partition(1, fetch_offset=2), partition(2), partition(1, fetch_offset=3)))
        _, full = Room().both(version, body)
        once = request(topic("orders", partition(1, fetch_offset=3), partition(2)))
        frame, at = frame_of(version, once)
        assert isinstance(full, Message)
        assert encoded(version, full) == b"".join(Room().express(frame, version, at, 5, CALLER) or [])

    in_room(story())


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_a_request_with_more_partitions_than_a_piece_takes_the_full_path(version: int) -> None:
    frame, at = frame_of(version, request(*[topic("orders", partition(1), partition(2))] * 250))
    assert express_fetch.read_fetch(frame, version, at) is None


@pytest.mark.parametrize("version", [15, 18])
def test_a_replica_of_the_newer_versions_takes_the_full_path(version: int) -> None:
    async def story() -> None:
        body = request(replica_state=Message(replica_id=2, replica_epoch=1))
        frame, at = frame_of(version, body)
        assert Room().express(frame, version, at, 5, CALLER) is None

    in_room(story())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_long_name_is_read_by_the_lane_or_left_to_the_full_path(version: int) -> None:
    async def story() -> None:
        lane, full = Room().both(version, request(topic("o" * 200)))
        assert isinstance(full, Message)
        assert lane == (None if version == 12 else encoded(version, full))

    in_room(story())


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_what_is_not_in_memory_takes_the_full_path_and_counts_nothing(version: int) -> None:
    async def story() -> None:
        room = Room()
        frame, at = frame_of(version, request())
        room.disk.cold = True
        assert room.express(frame, version, at, 5, CALLER) is None
        assert room.host.find("orders", 1).bytes_out == 0

    in_room(story())


@given(versions, st.data())
def test_a_garbled_request_is_never_answered_by_the_express_lane(version: int, data: st.DataObject) -> None:
    async def story() -> None:
        frame, at = frame_of(version, request())
        cut = data.draw(st.integers(at, len(frame) - 1))
        assert Room().express(frame[:cut], version, at, 5, CALLER) is None

    in_room(story())
