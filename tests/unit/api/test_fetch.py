"""How a consumer waits, on the express lane, on the full path and in a session: at most once, and for records only."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.api.contract import Caller, Peer
from headrace.api.express_fetch import ExpressFetch
from headrace.api.fetch import Fetch
from headrace.api.fetch_reading import FetchReading
from headrace.api.fetch_sessions import FetchSessions
from headrace.api.gate import Gate
from headrace.api.leader_hints import LeaderHints
from headrace.api.operations import NONE
from headrace.api.reply_budget import ReplyBudget
from headrace.api.table import Api
from headrace.api.view_fetch import Views
from headrace.log.logs import Logs
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.model.transaction_end import TransactionEnd
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.server.dispatch import Dispatcher
from headrace.server.requests_seen import RequestsSeen
from headrace.wire.api_keys import ApiKey
from headrace.wire.batches import TRANSACTIONAL
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message, decode_response, encode_request, header_version
from headrace.world.entropy import SeededEntropy
from sim import loop as sim_loop
from sim.computing import SimComputing
from sim.disk import SimDisk
from sim.loop import SimClock
from tests.unit.log.batches import batch
from tests.unit.log.test_dedup import batch_of
from tests.unit.log.test_visible import Reader
from tests.unit.server.long import long_work

FETCH, VERSION = 1, 12
TOPIC = "payments"
CALLER = Caller(Peer("", 0, "", 0))
WAIT_MS = 500
NEVER = 1 << 20  # bytes that never come
WAYS = ["express", "full", "session"]
OPEN = {"producer": 7, "epoch": 0, "sequence": 0, "attributes": TRANSACTIONAL}


class Room:
    """A broker with one partition, and a consumer that reaches it by one of the ways."""

    def __init__(self, way: str, **config: str) -> None:
        self.clock, self.disk = SimClock(), SimDisk()
        self.disk.make_dirs(Path("/data"))
        self.host = ReplicaHost(1, Logs(self.disk, self.clock, Path("/data")), self.clock, {})
        topic = TopicImage(TOPIC, uuid.UUID(int=5), (PartitionImage(0, (1,), (1,), 1, 3, 0, ()),), config)
        image = ClusterImage("c", 1, {1: BrokerImage(1, "h", 1, None, 1)}).with_topics([topic])
        self.host.follow(ClusterImage("", -1), image)
        sessions = FetchSessions(self.clock, SeededEntropy(1), 10, 10_000)
        hints = LeaderHints(lambda: image, lambda _, broker: (broker.host, broker.port))
        self.budget = ReplyBudget(NEVER)
        reading = FetchReading(self.host, self.disk.off_loop, NEVER, hints, self.budget)
        full = Fetch(
            self.host,
            Gate(),
            sessions,
            self.clock,
            SeededEntropy(2),
            reading,
            reading,
            Views(SimComputing(), self.clock),
        )
        express = ExpressFetch(self.host, Gate(), self.clock, NEVER, self.budget) if way == "express" else None
        self._dispatch = Dispatcher(
            {FETCH: Api(ApiKey.FETCH, 4, 18, NONE, full, express=express)}, RequestsSeen(), self.clock, long_work()
        )
        self._session = (0, 0 if way == "session" else -1)

    @property
    def partition(self) -> Partition:
        return self.host.find(TOPIC, 0)

    def send(self, *ids: bytes) -> None:
        self.partition.append(batch_of(*ids))

    def later(self, seconds: float, what: Callable[..., object], *args: object) -> None:
        self.clock.call_later(seconds, what, *args)

    async def fetch(self, offset: int, *, min_bytes: int = 1, stable: bool = False) -> tuple[bytes, ErrorCode, int]:
        """The records, the error, and how many milliseconds it took."""
        part = Message(
            partition=0, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1, log_start_offset=-1,
            partition_max_bytes=NEVER,
        )  # fmt: skip
        body = Message(
            replica_id=-1, max_wait_ms=WAIT_MS, min_bytes=min_bytes, max_bytes=NEVER, isolation_level=int(stable),
            session_id=self._session[0], session_epoch=self._session[1], forgotten_topics_data=[], rack_id="",
            topics=[Message(topic=TOPIC, partitions=[part])],
        )  # fmt: skip
        started_s = self.clock.monotonic()
        answer = await self._ask(body)
        if answer.session_id:
            self._session = (answer.session_id, self._session[1] + 1)
        found = [one for topic in answer.responses for one in topic.partitions]
        records, code = (bytes(found[0].records or b""), found[0].error_code) if found else (b"", 0)
        return records, ErrorCode(code), round((self.clock.monotonic() - started_s) * 1000)

    async def _ask(self, body: Message) -> Message:
        """As a connection does it."""
        tags = b"\x00" if header_version(FETCH, VERSION, "request") >= 2 else b""
        head = struct.pack(">hhih", FETCH, VERSION, 5, 3) + b"raw" + tags
        reply: Any = self._dispatch(memoryview(bytearray(head + encode_request(FETCH, VERSION, body))), CALLER)
        while not isinstance(reply, list):
            reply = reply.finish(await cast("Awaitable[Any]", reply.awaited))
        return decode_response(FETCH, VERSION, memoryview(b"".join(reply)[4:]), 5)


def given(records: bytes, offset: int) -> Reader:
    """A consumer at `offset` that was given these."""
    reader = Reader(offset)
    reader.take(records)
    return reader


def run(story: Coroutine[Any, Any, None]) -> None:
    sim_loop.run(story, 1)


# --- at most once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_fetch_waits_once_also_when_its_records_are_on_disk_by_then(way: str) -> None:
    async def story() -> None:
        room = Room(way)
        room.partition.append(batch())
        room.later(0.1, setattr, room.disk, "cold", True)
        records, _, took_ms = await room.fetch(0, min_bytes=NEVER)
        assert given(records, 0).values == [(0, b"value")]
        assert took_ms == WAIT_MS

    run(story())


@pytest.mark.parametrize("way", WAYS)
def test_a_fetch_waits_once_also_when_a_transaction_is_aborted_meanwhile(way: str) -> None:
    async def story() -> None:
        room = Room(way)
        room.partition.append(batch_of(b"a", **OPEN), transactional=True)
        room.later(0.1, room.partition.append_end, TransactionEnd(7, 1, 0, False, 0))
        records, _, took_ms = await room.fetch(0, min_bytes=NEVER, stable=True)
        assert given(records, 0).offset == 2
        assert took_ms == 100, "all of a transaction at once"

    run(story())


@pytest.mark.parametrize("way", WAYS)
def test_a_fetch_whose_leader_resigns_is_answered_at_once(way: str) -> None:
    async def story() -> None:
        room = Room(way)
        room.later(0.1, room.partition.resign, KafkaError(ErrorCode.not_leader_or_follower))
        _, code, took_ms = await room.fetch(0)
        assert (code, took_ms) == (ErrorCode.not_leader_or_follower, 100)

    run(story())


# --- for records only ------------------------------------------------------------------------------------------------

DEDUP = {"headrace.dedup.window.ms": "600000"}


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_consumer_that_waits_is_woken_by_a_record_and_not_by_duplicates(way: str, stable: bool) -> None:
    async def story() -> None:
        room = Room(way, **DEDUP)
        room.send(b"a")
        for at in range(1, 4):
            room.later(at / 10, room.send, b"a")
        room.later(0.4, room.send, b"b")
        records, _, took_ms = await room.fetch(1, stable=stable)
        assert took_ms == 400
        assert given(records, 1).values == [(4, b"b")]

    run(story())


@pytest.mark.parametrize("way", WAYS)
def test_a_consumer_at_offsets_without_records_gets_a_marker_at_once_and_waits_at_the_end(way: str) -> None:
    async def story() -> None:
        room = Room(way, **DEDUP)
        for _ in range(4):
            room.send(b"a")
        marker, _, took_ms = await room.fetch(1)
        reader = given(marker, 1)
        assert (reader.values, reader.position, took_ms) == ([], 4, 0)
        nothing, _, took_ms = await room.fetch(4)
        assert (nothing, took_ms) == (b"", WAIT_MS)

    run(story())


@pytest.mark.parametrize("way", WAYS)
def test_a_consumer_whose_time_is_up_is_given_the_marker_over_what_came_meanwhile(way: str) -> None:
    async def story() -> None:
        room = Room(way, **DEDUP)
        room.send(b"a")
        room.later(0.1, room.send, b"a")
        marker, _, took_ms = await room.fetch(1)
        reader = given(marker, 1)
        assert (reader.values, reader.position, took_ms) == ([], 2, WAIT_MS)

    run(story())
