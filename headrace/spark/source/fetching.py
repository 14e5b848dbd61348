"""Fetches one offset range of one partition from its leader.

Called by task.py for each range. The next request is sent before the last response is decoded, so the broker works
while Spark processes rows. While leaders move, brokers restart or responses time out, it retries until there was no
progress for `patience_s`; then it raises a Failure that names the missing offsets.

Invariant: every offset of the range was in a response that was returned, or a DataLoss was reported for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.blocking import Address, BlockingConnection, ConnectionLost, ReceiveBuffer
from headrace.client.metadata import MOVED, Cluster
from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition
from headrace.spark.source import data_loss
from headrace.spark.source.options import SourceOptions
from headrace.spark.source.positions import EARLIEST_OFFSET, LATEST_OFFSET
from headrace.spark.source.visible import Aborted, whole_batches
from headrace.wire.api_keys import ApiKey
from headrace.wire.batches import BatchHeader
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.world.clock import SystemClock

_LAST_VERSION_WITH_NAMES = 12
_MAX_WAIT_MS = 500
_NO_VIEW = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id, ErrorCode.invalid_topic_exception)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


@dataclass(frozen=True)
class LiveRange:
    """Offsets to fetch from a broker, and the leader as the driver last saw it."""

    place: TopicPartition
    start: int
    end: int
    leader: Address | None
    topic_id: str | None
    view: tuple[str, str | None] | None = None  # name and id of a view by which the broker filters


class Fetched(NamedTuple):
    """The batches of one response, which may reach beyond the range. Valid until the next response."""

    first: int  # records before this offset are not part of the range
    records: memoryview
    found: list[tuple[int, BatchHeader]]
    aborted: list[Aborted] | None  # None: with read_uncommitted


class RangeFetch:
    def __init__(self, options: SourceOptions, wanted: LiveRange, cluster: Cluster, clock: SystemClock) -> None:
        self._options = options
        self._wanted = wanted
        self._cluster = cluster
        self._clock = clock
        self._leader = wanted.leader
        self._topic_id = None if wanted.topic_id is None else uuid.UUID(wanted.topic_id)
        self._view = wanted.view
        self._position = wanted.start
        self._buffer = ReceiveBuffer()
        self._connection: BlockingConnection | None = None  # with a request in flight
        self._progress_at = clock.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    def responses(self) -> Iterator[Fetched]:
        """The batches of the range, response by response."""
        try:
            while self._position < self._wanted.end:
                got = self._next()
                if got is not None:
                    yield got
        finally:
            if self._connection is not None:  # the caller stopped early; the response in flight is no longer needed
                self._connection.close()

    # --- one request ------------------------------------------------------------------------------------------------

    def _next(self) -> Fetched | None:
        try:
            if self._connection is None:
                if self._leader is None and not self._find_leader():
                    return None
                self._ask()
            part = self._receive()
        except ConnectionLost as error:
            self._lost_leader()
            self._wait(str(error))
            return None
        if part.error_code != ErrorCode.none:
            self._refused(ErrorCode(part.error_code))
            return None
        records = memoryview(part.records or b"")
        found = whole_batches(records)
        if not found or found[-1][1].next_offset <= self._position:
            self._wait(f"the leader returned no records, its high watermark is {part.high_watermark}")
            return None
        self._progress_at, self._pause_s = self._clock.monotonic(), _FIRST_PAUSE_S
        first, self._position = self._position, found[-1][1].next_offset
        if self._position < self._wanted.end:
            self._ask_ahead()
        if not self._options.read_committed:
            return Fetched(first, records, found, None)
        named = part.aborted_transactions or []
        return Fetched(first, records, found, [Aborted(one.producer_id, one.first_offset) for one in named])

    def _ask(self) -> None:
        assert self._leader is not None
        connection = self._cluster.connection(self._leader)
        size = self._options.fetch_bytes
        part = Message(partition=self._wanted.place.partition, fetch_offset=self._position, partition_max_bytes=size)
        name, topic_id = self._wanted.place.topic, self._topic_id
        if self._view is not None:
            name, topic_id = self._view[0], None if self._view[1] is None else uuid.UUID(self._view[1])
        topic = Message(topic=name, topic_id=topic_id, partitions=[part])
        body = Message(
            max_wait_ms=_MAX_WAIT_MS if self._view is None else 0,  # a view answers how far it looked, found or not
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(self._options.read_committed),
            topics=[topic],
        )
        version = connection.version_of(ApiKey.FETCH)
        if topic_id is None:
            version = min(version, _LAST_VERSION_WITH_NAMES)
        connection.send(ApiKey.FETCH, body, version=version)
        self._connection = connection

    def _ask_ahead(self) -> None:
        """Send the next request early. A failure here is ignored: it shows again when the response is needed."""
        try:
            self._ask()
        except ConnectionLost:
            self._lost_leader()

    def _receive(self) -> Message:
        connection, self._connection = self._connection, None
        assert connection is not None
        answer = connection.receive(buffer=self._buffer)
        if answer.error_code != ErrorCode.none:
            return Message(error_code=answer.error_code)
        part: Message = answer.responses[0].partitions[0]
        return part

    # --- trouble ----------------------------------------------------------------------------------------------------

    def _lost_leader(self) -> None:
        self._leader = None
        self._cluster.forget(self._wanted.place.topic)

    def _find_leader(self) -> bool:
        """Whether there is a leader. A topic may be unknown for a moment, to a starting broker, or because it was
        deleted."""
        place = self._wanted.place
        topic = self._cluster.topics([place.topic]).get(place.topic)
        lost = ""
        if topic is None and self._silent_s() > self._options.patience_s:
            lost = data_loss.gone(place, self._position)
        elif topic is not None and self._topic_id is not None and topic.id not in (None, self._topic_id):
            lost = data_loss.created_anew(place, self._position)
        if lost:
            data_loss.report(self._options.fail_on_data_loss, lost)
            self._position = self._wanted.end
            return False
        self._leader = None if topic is None else self._cluster.known_leader(*place)
        if self._leader is None:
            self._wait("it has no leader")
        return self._leader is not None

    def _silent_s(self) -> float:
        return self._clock.monotonic() - self._progress_at

    def _wait(self, why: str) -> None:
        silent_s = self._silent_s()
        if silent_s > self._options.patience_s:
            place = self._wanted.place
            raise Failure(
                f"partition {place.partition} of topic {place.topic} returned no records from offset {self._position} "
                f"for {silent_s:.0f} seconds, the end offset was {self._wanted.end}: {why}"
            )
        self._clock.pause(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _refused(self, code: ErrorCode) -> None:
        place = self._wanted.place
        if self._view is not None and code in _NO_VIEW:
            self._view = None  # it was deleted: the rows are filtered here anyway
        elif code == ErrorCode.offset_out_of_range:
            self._out_of_range()
        elif code in MOVED:
            self._lost_leader()
            self._wait(code.name)
        else:
            raise Failure(f"partition {place.partition} of topic {place.topic} cannot be read: {code.name}")

    def _out_of_range(self) -> None:
        place = self._wanted.place
        earliest, latest = self._edge(EARLIEST_OFFSET), self._edge(LATEST_OFFSET)
        if earliest is None or latest is None:
            self._lost_leader()
            self._wait(ErrorCode.offset_out_of_range.name)
        elif self._position < earliest:
            data_loss.report(self._options.fail_on_data_loss, data_loss.aged_out(place, self._position, earliest))
            self._position = earliest
        elif self._position > latest:
            data_loss.report(self._options.fail_on_data_loss, data_loss.went_back(place, self._position, latest))
            self._position = self._wanted.end
        else:  # another leader answered meanwhile
            self._wait(ErrorCode.offset_out_of_range.name)

    def _edge(self, which: int) -> int | None:
        place = self._wanted.place
        part = Message(partition_index=place.partition, timestamp=which)
        body = Message(replica_id=-1, isolation_level=0, topics=[Message(name=place.topic, partitions=[part])])
        answer = self._cluster.call_leader(*place, ApiKey.LIST_OFFSETS, body).topics[0].partitions[0]
        return answer.offset if answer.error_code == ErrorCode.none else None
