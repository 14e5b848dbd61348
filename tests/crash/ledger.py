"""Checks that the records that can be read agree with what was sent and what was acknowledged.

Every record carries its place in its partition's sequence. A reader must see every acknowledged record, at the offset
of its acknowledgement; the records in the order in which they were sent; and no duplicates.
"""

import itertools
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

READ_AT_ONCE = 20_000
PADDING = b"." * 200


def record(place: int) -> bytes:
    return b"%d %s" % (place, PADDING[: 20 + place % 180])


def place_of(value: bytes | None) -> int:
    assert value is not None
    return int(value.partition(b" ")[0])


class Ledger:
    def __init__(self) -> None:
        self.sent: dict[int, int] = defaultdict(int)  # by partition: the number of records
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)  # by partition: place -> offset
        self.refused: list[str] = []

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """The producer's delivery report."""
        if error is not None:
            self.refused.append(str(error))
            return
        self.acknowledged[message.partition() or 0][place_of(message.value())] = message.offset() or 0

    def check(self, bootstrap: str, topic: str) -> int:
        """Read all records and compare; returns how many were read."""
        found = 0
        for partition in self.sent:
            offsets = read_places(bootstrap, topic, partition)
            places = [place for _, place in offsets]
            assert places == sorted(set(places)), first_disorder(topic, partition, offsets)
            at = {place: offset for offset, place in offsets}
            lost = [place for place in self.acknowledged[partition] if place not in at]
            assert not lost, f"{topic}-{partition}: {len(lost)} acknowledged records are lost, the first is {min(lost)}"
            moved = {p: (o, at[p]) for p, o in self.acknowledged[partition].items() if at[p] != o}
            assert not moved, f"{topic}-{partition}: acknowledged at one offset, read at another: {moved}"
            assert places == list(range(len(places))), f"{topic}-{partition}: a record in the middle is missing"
            found += len(places)
        return found


def read_places(bootstrap: str, topic: str, partition: int) -> list[tuple[int, int]]:
    """Offset and place of every record in the partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ledger", "check.crcs": True, "log_level": 0})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[tuple[int, int]] = []
        while len(found) < end:  # nothing removes records here, so there is one at each offset
            messages = consumer.consume(min(READ_AT_ONCE, end - len(found)), 30)
            assert messages, f"{topic}-{partition}: read only {len(found)} of {end} records"
            for message in messages:
                assert message.error() is None, f"{topic}-{partition}: {message.error()}"
                found.append((message.offset() or 0, place_of(message.value())))
        return found
    finally:
        consumer.close()


def first_disorder(topic: str, partition: int, offsets: list[tuple[int, int]]) -> str:
    for (before, one), (after, other) in itertools.pairwise(offsets):
        if other <= one:
            what = "a duplicate or out of order"
            return f"{topic}-{partition}: record {other} is {what}: offset {before} has {one}, {after} has {other}"
    return f"{topic}-{partition}: in order"
