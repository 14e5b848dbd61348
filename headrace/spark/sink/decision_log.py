"""The decision log: the compacted topic that stores the sink's decisions.

Written by the driver; tasks only read. To decide for a stream, a driver first takes it over: it initializes a producer
with the stream's own transactional id, which fences earlier owners and ends their open transactions. Then it reads the
log. So the owner knows every decision made, and no other can be made until it is superseded. A decision is one
transaction: all of its parts are in the log, or none. Between writing its records and committing them, the log is read
once more up to these records: a new leader may hide committed records until it has replicated a record of its own
epoch; after that, none can be missing.

It is not read with read_committed, which stops at the first open transaction of any producer. Instead the control
batches in the log tell which transactions were committed. Compaction removes a control batch only after all records of
its transaction, and never beyond the last stable offset; so a record before that offset without a control batch is
committed.
"""

from __future__ import annotations

from headrace.client.metadata import Cluster
from headrace.model.failure import Failure
from headrace.spark.sink.decisions import Decision, decision_of, streams_in
from headrace.spark.sink.names import Stream
from headrace.spark.sink.transactions import FENCED, ProducerIdAndEpoch, Transactions
from headrace.wire import batches, records
from headrace.wire.api_keys import ApiKey
from headrace.wire.batches import TRANSACTIONAL
from headrace.wire.end_markers import EndMarker, read_marker
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.wire.partitioning import partition_for_key
from headrace.wire.record import Record
from headrace.world.clock import SystemClock

TOPIC = "__headrace_spark_sinks"
PARTITIONS = 8
REPLICAS = 3
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),  # tasks read a whole partition: small segments, so that compaction keeps it short
    "min.cleanable.dirty.ratio": "0.05",
}

_PRODUCE_VERSION, _FETCH_VERSION, _LIST_OFFSETS_VERSION = 9, 11, 2
_EARLIEST = -2
_FETCH_BYTES = 4 << 20
_STALL_S, _PAUSE_S = 30.0, 0.01
_TIMEOUT_MS = 60_000  # of the transaction of a decision, which takes two requests


class Superseded(Failure):
    """Another driver has taken over the stream, so this one must not decide."""


class DecisionLog:
    def __init__(self, cluster: Cluster, transactions: Transactions, clock: SystemClock) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._clock = clock

    def last(self, stream: Stream) -> Decision:
        """The last final decision on a stream. One that is being made may be missed."""
        count = self._partition_count()
        if not count:
            return Decision(stream)
        return decision_of(stream, self._read(CommittedEntries(), _partition_of(stream, count)))

    def unfinished(self) -> list[Decision]:
        """Decisions, on any stream, that are not done."""
        found: list[Decision] = []
        for partition in range(self._partition_count()):
            latest = self._read(CommittedEntries(), partition)
            found += [decision_of(stream, latest) for stream in streams_in(latest)]
        return [decision for decision in found if not decision.done]

    def take_over(self, stream: Stream) -> StreamOwnership:
        """Fence every other owner of this stream, then read its decisions."""
        partition = _partition_of(stream, self._partition_count() or self._create())
        producer = self._transactions.begin(_transactional_id(stream), _TIMEOUT_MS)
        ownership = StreamOwnership(self, stream, partition, producer)
        self._read(ownership.committed, partition)
        return ownership

    def write(self, ownership: StreamOwnership, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Write all entries in one transaction. Superseded if another driver took over; after any other error it is
        unknown whether they were committed, until the stream is taken over again."""
        name, producer = _transactional_id(ownership.stream), ownership.producer
        now_ms = self._clock.now_ms()
        batch = records.encode_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(entries)],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=ownership.sequence,
            attributes=TRANSACTIONAL,
        )
        try:
            self._transactions.add(name, producer, [(TOPIC, ownership.partition)])
            written_at = self._produce(name, ownership.partition, batch)
            last = ownership.last
            self._read(ownership.committed, ownership.partition, written_at)
            if ownership.last != last:
                self._transactions.end(name, producer, commit=False)
                raise Superseded(
                    f"{ownership.stream} was decided by another driver: does the query run twice? Stop one of them"
                )
            code = self._transactions.end(name, producer, commit=True)
            if code is not ErrorCode.none:
                raise KafkaError(code, f"the decision on {ownership.stream} could not be committed: {code.name}")
        except KafkaError as error:
            if error.code in FENCED:
                raise Superseded(
                    f"another driver has taken over {ownership.stream}: does the query run twice? Stop one of them"
                ) from error
            raise
        ownership.sequence += len(entries)
        ownership.committed.write(entries, written_at + len(entries))

    def _produce(self, name: str, partition: int, batch: bytearray) -> int:
        """Produce a batch, and return its offset."""
        data = Message(name=TOPIC, partition_data=[Message(index=partition, records=batch)])
        body = Message(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[data])
        answer = self._cluster.call_leader(TOPIC, partition, ApiKey.PRODUCE, body, version=_PRODUCE_VERSION)
        result = answer.responses[0].partition_responses[0]
        code = ErrorCode(result.error_code)
        if code is not ErrorCode.none:
            raise KafkaError(code, f"a decision could not be written to {TOPIC}-{partition}: {code.name}")
        return int(result.base_offset)

    # --- the topic --------------------------------------------------------------------------------------------------

    def _partition_count(self) -> int:
        topic = self._cluster.topics([TOPIC]).get(TOPIC)
        return len(topic.partitions) if topic else 0

    def _create(self) -> int:
        """Create the topic, and return its partition count."""
        replicas = min(REPLICAS, len(self._cluster.brokers()))
        topic = Message(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=replicas,
            configs=[Message(name=name, value=value) for name, value in SETTINGS.items()],
        )
        answer = self._cluster.call(ApiKey.CREATE_TOPICS, Message(topics=[topic], timeout_ms=30_000))
        for made in answer.topics:
            if made.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                code = ErrorCode(made.error_code)
                raise Failure(
                    f"the topic {TOPIC}, which holds the decisions of exactly-once sinks, cannot be created "
                    f"({code.name}): create it with {PARTITIONS} partitions and cleanup.policy=compact, or write with "
                    "option('delivery', 'at-least-once')"
                )
        begun_s = self._clock.monotonic()
        while not (count := self._partition_count()):  # brokers learn of it one after the other
            if self._clock.monotonic() - begun_s > _STALL_S:
                raise Failure(
                    f"the topic {TOPIC} was created, but brokers do not list it after {_STALL_S:g} s: try again"
                )
            self._clock.pause(_PAUSE_S)
        return count

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, committed: CommittedEntries, partition: int, end: int = -1) -> dict[bytes, bytes]:
        """Continue reading to the end of the log, or to `end`; returns the latest committed value of each key."""
        begun_s = self._clock.monotonic()
        while end < 0 or committed.next_offset < end:
            found = self._fetch(partition, committed.next_offset)
            if found.error_code == ErrorCode.offset_out_of_range and committed.next_offset == 0:
                committed.next_offset = self._earliest(partition)
                continue
            if found.error_code != ErrorCode.none:
                code = ErrorCode(found.error_code)
                raise KafkaError(code, f"{TOPIC}-{partition} cannot be read at {committed.next_offset}: {code.name}")
            if end < 0:
                end = found.high_watermark  # records written later are not needed
            if not committed.take(found.records or b"", found.last_stable_offset, end):
                if self._clock.monotonic() - begun_s > _STALL_S:
                    raise Failure(
                        f"{TOPIC}-{partition} returns no records from offset {committed.next_offset} to {end}"
                    )
                self._clock.pause(_PAUSE_S)
        return committed.latest()

    def _fetch(self, partition: int, offset: int) -> Message:
        asked = Message(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        body = Message(min_bytes=0, max_bytes=_FETCH_BYTES, topics=[Message(topic=TOPIC, partitions=[asked])])
        answer = self._cluster.call_leader(TOPIC, partition, ApiKey.FETCH, body, version=_FETCH_VERSION)
        found: Message = answer.responses[0].partitions[0]
        return found

    def _earliest(self, partition: int) -> int:
        asked = Message(partition_index=partition, timestamp=_EARLIEST)
        body = Message(replica_id=-1, topics=[Message(name=TOPIC, partitions=[asked])])
        answer = self._cluster.call_leader(TOPIC, partition, ApiKey.LIST_OFFSETS, body, version=_LIST_OFFSETS_VERSION)
        return int(answer.topics[0].partitions[0].offset)


class StreamOwnership:
    """The right to decide for a stream, until another driver takes over."""

    def __init__(self, log: DecisionLog, stream: Stream, partition: int, producer: ProducerIdAndEpoch) -> None:
        self.stream = stream
        self.partition = partition
        self.producer = producer
        self.sequence = 0
        self.committed = CommittedEntries()
        self._log = log

    @property
    def last(self) -> Decision:
        """The last decision on the stream, as of the last read of the log."""
        return decision_of(self.stream, self.committed.latest())

    def write(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        self._log.write(self, entries)

    def adopt(self, later: StreamOwnership) -> None:
        """Continue with a later ownership that the same process took, after a write with unknown outcome."""
        self.producer, self.sequence, self.committed = later.producer, later.sequence, later.committed


class CommittedEntries:
    """The committed entries of a partition, from its batches in order."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._stable_offset = -1
        self._latest: dict[bytes, bytes] = {}
        self._waiting: dict[int, list[Record]] = {}  # by producer id, of transactions without a control batch so far

    def take(self, buffer: batches.Buffer, stable_offset: int, end: int) -> bool:
        """Add the records of a fetch, up to `end`; false if there are none."""
        start = self.next_offset
        if stable_offset <= end:  # else some control batches are not read yet
            self._stable_offset = max(self._stable_offset, stable_offset)
        for place, header in batches.walk(buffer):
            if header.base_offset >= end:
                break
            if not batches.crc_ok(buffer, place, header):
                raise KafkaError(ErrorCode.corrupt_message, f"{TOPIC} is corrupt at offset {header.base_offset}")
            if header.is_control:
                self._end(header.producer_id, read_marker(buffer, place))
            else:
                found = [record for record in records.decode(buffer, place) if record.offset >= start]
                self._waiting.setdefault(header.producer_id, []).extend(found)
            self.next_offset = max(self.next_offset, header.next_offset)
        return self.next_offset > start

    def write(self, entries: list[tuple[bytes, bytes | None]], next_offset: int) -> None:
        """Add entries that this process has written and committed itself. Their control batch is in the next read,
        where it has no effect."""
        for key, value in entries:
            self._apply(key, value)
        self.next_offset = next_offset

    def latest(self) -> dict[bytes, bytes]:
        """The latest committed value of each key."""
        for waiting in self._waiting.values():
            while waiting and waiting[0].offset < self._stable_offset:
                record = waiting.pop(0)
                self._apply(record.key, record.value)
        return self._latest

    def _end(self, producer_id: int, marker: EndMarker | None) -> None:
        ended = self._waiting.pop(producer_id, [])
        if marker is not None and marker.commit:
            for record in ended:
                self._apply(record.key, record.value)

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        if value is None:
            self._latest.pop(key, None)
        else:
            self._latest[key] = value


def _partition_of(stream: Stream, count: int) -> int:
    return partition_for_key(stream.key.encode(), count)


def _transactional_id(stream: Stream) -> str:
    return f"decisions/{stream.key}"
