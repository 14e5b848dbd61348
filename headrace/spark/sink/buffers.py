"""Collects rows into record batches: one open section for each partition that gets rows.

Owned by one task, between rows.py, which provides Arrow batches, and sender.py, which takes complete record batches. A
row goes to the partition in its column `partition`, else to the one chosen by the hash of its key, as in Kafka's Java
client; rows without a key go to one partition per Arrow batch, in turn.

Invariant: rows of one partition keep their order, and their sequence numbers have no gaps.
"""

from __future__ import annotations

from headrace.client.metadata import Cluster, Topic
from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition
from headrace.spark.sink.options import SinkOptions
from headrace.spark.sink.rows import RowColumns
from headrace.spark.sink.sender import Outgoing, Sender
from headrace.spark.sink.transactions import ProducerIdAndEpoch
from headrace.wire.arrow_encode import Section, assign_slots, order_by_slot
from headrace.world.clock import SystemClock

_SEQUENCES = 1 << 31
_TOPIC_PATIENCE_S, _PAUSE_S = 2.0, 0.05
_HELD_BYTES = 64 << 20  # in all open sections of a task


class Buffers:
    def __init__(
        self,
        cluster: Cluster,
        sender: Sender,
        options: SinkOptions,
        producer: ProducerIdAndEpoch,
        first_partition: int,
        clock: SystemClock,
        *,
        transactional: bool,
    ) -> None:
        self.rows = 0
        self._cluster = cluster
        self._sender = sender
        self._options = options
        self._producer = producer
        self._clock = clock
        self._transactional = transactional
        self._limit_bytes = options.batch_bytes
        self._turn = first_partition  # tasks start at different partitions
        self._first_slots: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._places: list[TopicPartition] = []  # by slot
        self._sections: list[Section] = []
        self._sequences: list[int] = []

    def add(self, columns: RowColumns) -> None:
        """Add the rows of an Arrow batch; full sections are sent."""
        for topic in columns.topic_names:
            if topic not in self._counts:
                self._open_topic(topic)
        counts = [self._counts[topic] for topic in columns.topic_names]
        firsts = [self._first_slots[topic] for topic in columns.topic_names]
        sticky = [self._turn % count for count in counts]
        self._turn += 1
        rows = columns.rows
        try:
            slots = assign_slots(rows.rows, rows.keys, columns.partitions, columns.topics, firsts, counts, sticky)
            order, bounds = order_by_slot(slots, len(self._places))
            for slot in range(len(self._places)):
                self._fill(slot, columns, order, bounds[slot], bounds[slot + 1])
        except ValueError as error:
            topics = ", ".join(columns.topic_names)
            raise Failure(f"a row for topic {topics} cannot be written: {error}") from error
        self.rows += rows.rows
        if sum(len(section) for section in self._sections) > _HELD_BYTES:
            self._send_all()

    def flush(self) -> None:
        """Send the open sections; when this returns, all rows are stored."""
        self._send_all()
        self._sender.flush()

    def _open_topic(self, name: str) -> None:
        found = self._find_topic(name)
        self._first_slots[name] = len(self._places)
        self._counts[name] = len(found.partitions)
        for partition in range(len(found.partitions)):
            self._places.append(TopicPartition(name, partition))
            self._sections.append(Section())
            self._sequences.append(0)

    def _find_topic(self, name: str) -> Topic:
        """Look a topic up, with retries: one that was just created may not be known to every broker yet."""
        begun_s = self._clock.monotonic()
        while True:
            found = self._cluster.topics([name]).get(name)
            if found is not None:
                return found
            if self._clock.monotonic() - begun_s > _TOPIC_PATIENCE_S:
                raise Failure(f"topic {name} does not exist: create it, or correct the name")
            self._clock.pause(_PAUSE_S)

    def _fill(self, slot: int, columns: RowColumns, order: bytearray, start: int, stop: int) -> None:
        while start < stop:
            start += self._sections[slot].add(columns.rows, order, start, stop, self._limit_bytes)
            if start < stop:
                self._send(slot)

    def _send_all(self) -> None:
        for slot, section in enumerate(self._sections):
            if section.count:
                self._send(slot)

    def _send(self, slot: int) -> None:
        section, sequence = self._sections[slot], self._sequences[slot]
        data = section.seal(
            self._options.codec,
            self._producer.id,
            self._producer.epoch,
            sequence,
            transactional=self._transactional,
        )
        self._sections[slot] = Section()
        self._sequences[slot] = (sequence + section.count) % _SEQUENCES
        self._sender.send(Outgoing(self._places[slot], data, sequence))
