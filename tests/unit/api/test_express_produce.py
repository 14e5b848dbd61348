"""The express lane of Produce answers byte for byte what the full path answers, and appends the same.

Each request is given to two rooms that are alike: one is asked through the dispatcher with the express lane, the other
without it. The replies, and the logs of all partitions, must be equal afterwards.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.api import express_produce
from headrace.api.contract import Caller, Disconnect, Peer
from headrace.api.express_produce import ExpressProduce
from headrace.api.gate import Gate
from headrace.api.leader_hints import LeaderHints
from headrace.api.long_appends import LongAppends
from headrace.api.operations import NONE
from headrace.api.produce import Produce
from headrace.api.table import Api
from headrace.api.transaction_entry import TransactionEntry
from headrace.api.transactional_produce import TransactionalProduce
from headrace.log.logs import Logs
from headrace.model.image import GROUP_OFFSETS_TOPIC, BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.server.dispatch import Dispatcher
from headrace.server.requests_seen import RequestsSeen
from headrace.wire.api_keys import ApiKey
from headrace.wire.batches import TRANSACTIONAL
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message, encode_request, header_version
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from headrace.world.threads import Computing
from sim import loop as sim_loop
from sim.computing import SimComputing
from sim.disk import SimDisk
from sim.loop import SimClock
from tests.conftest import SOAKING
from tests.unit.api.express_twins import TWINS, working_with
from tests.unit.log.batches import batch, from_producer
from tests.unit.server.long import long_work

CALLER = Caller(Peer("", 0, "", 0))
VERSIONS = range(3, 14)
SETTINGS: dict[str, dict[str, str]] = {
    "orders": {},
    "o" * 200: {},
    "synced": {"headrace.flush": "fsync"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "gzip"},
    "deduplicated": {"headrace.dedup.window.ms": "60000"},
    "small": {"max.message.bytes": "100"},
    "lonely": {"min.insync.replicas": "2"},
    GROUP_OFFSETS_TOPIC: {},
}
IDS = {name: uuid.UUID(int=number) for number, name in enumerate(SETTINGS, 1)}


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__, scope="module", autouse=True)
def _each_twin(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from working_with(request.param, express_produce, "read_produce", "write_produce")


class RefusingDesk:
    """A coordinator that knows no transaction."""

    def submit(self, command: Any) -> asyncio.Future[Any]:
        reply = asyncio.get_running_loop().create_future()
        reply.set_exception(KafkaError(ErrorCode.invalid_txn_state))
        return reply


class Room:
    """A broker that leads one partition of every topic; `replicas` says of how many replicas each has."""

    def __init__(
        self,
        *,
        express: bool,
        replicas: int = 1,
        gate: Gate | None = None,
        desk: Any = None,
        computing: Computing | None = None,
    ) -> None:
        clock, disk, gate = SimClock(), SimDisk(), gate or Gate()
        disk.make_dirs(Path("/data"))
        self.host = ReplicaHost(1, Logs(disk, clock, Path("/data")), clock, {})
        members = tuple(range(1, replicas + 1))
        state = PartitionImage(0, members, members, 1, 3, 0, (1,) * replicas)
        topics = [TopicImage(name, IDS[name], (state,), settings) for name, settings in SETTINGS.items()]
        image = ClusterImage("c", 1, {1: BrokerImage(1, "h", 1, None, 1)}).with_topics(topics)
        self.host.follow(ClusterImage("", -1), image)
        hints = LeaderHints(lambda: image, lambda _, broker: (broker.host, broker.port))
        transactions = TransactionalProduce(TransactionEntry(desk or RefusingDesk()))
        self.full = Produce(self.host, gate, hints, clock, transactions, LongAppends(computing or SimComputing()))
        self.lane = ExpressProduce(self.host, gate)
        api = Api(ApiKey.PRODUCE, 3, 13, NONE, self.full, express=self.lane if express else None)
        self.dispatch = Dispatcher({0: api}, RequestsSeen(), clock, long_work())

    def partition(self, topic: str = "orders") -> Partition:
        return self.host.find(topic, 0)

    async def ask(self, version: int, body: Message, caller: Caller = CALLER) -> bytes | None:
        """The reply; b"" if the connection is closed, None if there is no reply."""
        frame, _ = frame_of(version, body)
        try:
            reply = self.dispatch(frame, caller)
        except Disconnect:
            return b""
        frame[:] = bytes(len(frame))  # as the next request in the same buffer does
        while reply is not None and not isinstance(reply, list):
            reply = cast("Any", reply.finish(await reply.awaited))
        return None if reply is None else b"".join(reply)

    def logs(self) -> dict[str, Any]:
        """What is stored, and what is known of producers and of records."""
        found = {}
        for name in SETTINGS:
            partition = self.partition(name)
            log = partition.log
            data = log.read(0, 1 << 30, log.end_offset, at_least_one=True).load() if log.end_offset else b""
            producers = {
                number: (producer.epoch, producer.next_sequence) for number, producer in log.producers.producers.items()
            }
            counted = (partition.messages_in, partition.bytes_in, partition.high_watermark)
            leader = partition._leader
            refused = {} if leader is None else dict(leader.refusals.by_producer)
            found[name] = (bytes(data), producers, counted, refused)
        return found


def in_room(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    sim_loop.run(story(), 1)


def frame_of(version: int, body: Message) -> tuple[memoryview, int]:
    tags = b"\x00" if header_version(ApiKey.PRODUCE, version, "request") >= 2 else b""
    head = struct.pack(">hhih", ApiKey.PRODUCE, version, 5, 3) + b"raw" + tags
    return memoryview(bytearray(head + encode_request(ApiKey.PRODUCE, version, body))), len(head)


def topic(name: str, *records: bytes | None, index: int = 0) -> Message:
    parts = [Message(index=index, records=each) for each in records]
    return Message(name=name, topic_id=IDS.get(name, uuid.UUID(int=99)), partition_data=parts)


def request(*topics: Message, **changed: Any) -> Message:
    fields: dict[str, Any] = {"acks": 1, "timeout_ms": 1000, "topic_data": list(topics), "transactional_id": None}
    return Message(**fields | changed)


def good(count: int = 2, value: bytes = b"v") -> bytes:
    return bytes(batch(count, at=0, value=value))


def transactional() -> bytes:
    sent = [Record(0, 0, b"k", b"v")]
    return encode_batch(sent, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)


def bad_crc() -> bytes:
    records = bytearray(good())
    records[-1] ^= 1
    return bytes(records)


async def both(version: int, bodies: list[Message], replicas: int = 1) -> tuple[Room, list[bytes | None]]:
    """Ask two equal rooms the same; they answer the same and store the same."""
    express, full = Room(express=True, replicas=replicas), Room(express=False, replicas=replicas)
    replies = []
    for body in bodies:
        reply, expected = await asyncio.gather(express.ask(version, body), full.ask(version, body))
        assert reply == expected
        replies.append(reply)
        assert express.logs() == full.logs()
    return express, replies


values = st.binary(max_size=60)
plain = st.builds(good, st.integers(1, 5), values)
sequences = st.builds(
    lambda producer, epoch, sequence, count: bytes(from_producer(sequence, count, producer=producer, epoch=epoch)),
    st.integers(7, 8), st.integers(0, 1), st.integers(0, 4), st.integers(1, 2),
)  # fmt: skip
records = st.one_of(plain, sequences, st.just(bad_crc()), st.just(transactional()), st.binary(max_size=80), st.none())
names = st.sampled_from([*SETTINGS, "nowhere"])
topics = st.builds(topic, names, records)
usual = st.builds(lambda topic, acks: request(topic, acks=acks), topics, st.sampled_from([1, -1]))
unusual = st.builds(
    lambda topics, acks, name: request(*topics, acks=acks, transactional_id=name),
    st.lists(topics, max_size=3), st.sampled_from([-1, 0, 1, 2, -2]), st.sampled_from([None, None, "t"]),
)  # fmt: skip


@given(st.sampled_from(VERSIONS), st.lists(usual | unusual, min_size=1, max_size=6), st.integers(1, 2))
@settings(max_examples=2000 if SOAKING else 100)
def test_both_paths_answer_and_store_the_same(version: int, bodies: list[Message], replicas: int) -> None:
    async def story() -> None:
        await both(version, bodies, replicas)

    in_room(story)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["orders", "stamped", "recompressed", "deduplicated", "o" * 200])
def test_the_usual_request_takes_the_express_lane(version: int, acks: int, name: str) -> None:
    async def story() -> None:
        room, body = Room(express=True), request(topic(name, good()), acks=acks)
        frame, at = frame_of(version, body)
        reply = room.lane(frame, version, at, 5, CALLER)
        if len(name) >= 127 and 9 <= version <= 12:
            assert reply is None, "only a very long name needs the full path"
            return
        assert b"".join(reply or []) == await Room(express=False).ask(version, body)
        assert room.partition(name).log.end_offset == 2

    in_room(story)


def unusual_requests() -> Iterator[tuple[str, Message]]:
    one = topic("orders", good())
    yield "a transaction", request(one, transactional_id="t")
    yield "no reply wanted", request(one, acks=0)
    yield "acks that do not exist", request(one, acks=5)
    yield "two topics", request(one, one)
    yield "no topic", request()
    yield "two partitions", request(topic("orders", good(), good()))
    yield "no records", request(topic("orders", None))
    yield "a batch that the log refuses", request(topic("orders", bad_crc()))
    yield "a batch that is too large", request(topic("small", good(20)))
    yield "records without keys", request(topic("compacted", bytes(batch(1, at=0, key=None))))
    yield "an unknown topic", request(topic("nowhere", good()))
    yield "an unknown partition", request(topic("orders", good(), index=3))
    yield "a sync to wait for", request(topic("synced", good()))
    yield "too few replicas", request(topic("lonely", good()), acks=-1)
    yield "an internal topic", request(topic(GROUP_OFFSETS_TOPIC, good()))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("what", "body"), list(unusual_requests()))
def test_the_express_lane_leaves_the_unusual_request_to_the_full_path_untouched(
    version: int, what: str, body: Message
) -> None:
    async def story() -> None:
        room = Room(express=True)
        before = room.logs()
        frame, at = frame_of(version, body)
        assert room.lane(frame, version, at, 5, CALLER) is None, what
        assert room.logs() == before
        await both(version, [body])

    in_room(story)


@given(st.sampled_from(VERSIONS), st.data())
def test_a_garbled_request_is_never_answered_by_the_express_lane(version: int, data: st.DataObject) -> None:
    async def story() -> None:
        room = Room(express=True)
        frame, at = frame_of(version, request(topic("orders", good())))
        cut = data.draw(st.integers(at, len(frame) - 1))
        assert room.lane(frame[:cut], version, at, 5, CALLER) is None
        assert room.partition().log.end_offset == 0

    in_room(story)
