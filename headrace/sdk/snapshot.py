"""Reads partitions from given offsets to the ends that they had when the reading began.

Used by PendingView. A partition that others write to all the time has no end at which a consumer could stop: librdkafka
reports an end only after a fetch that brought nothing at all, and a fetch over markers, or over records that a view
leaves out, brings something. So the ends are asked for first, and a partition is done when a message from beyond its
end comes, when librdkafka reports an end, or when it says that its next fetch is beyond. Invariant: every message below
the ends is returned once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.sdk.errors import Unreachable, cause_of, explained

ANSWER_TIMEOUT_S = 10.0
BATCH = 1000
NOTHING = -1_000_000  # less than any offset, also than librdkafka's names for the start and the end
WAIT_S = 0.1
SILENCE_TURNS = 300  # of WAIT_S without a message or any progress


class Snapshot:
    """A consumer without a group, for one reading."""

    def __init__(self, settings: Mapping[str, Any], doing: str) -> None:
        self._doing = doing
        self._next_fetch: dict[int, int] = {}  # by partition, as librdkafka's statistics say
        try:
            self.client = confluent_kafka.Consumer(
                {
                    "group.id": "headrace-snapshot",  # librdkafka wants one; nothing is subscribed or committed
                    "enable.auto.commit": False,
                    "isolation.level": "read_uncommitted",  # what waits is committed, also behind an open transaction
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",  # an offset that is gone: read on at what is there
                    "fetch.wait.max.ms": 10,
                    "statistics.interval.ms": 50,
                    "stats_cb": self._learn,
                    **settings,
                }
            )
        except KafkaException as error:
            raise explained(cause_of(error), f"{doing}: starting a consumer") from error

    def close(self) -> None:
        self.client.close()

    def read(self, places: Sequence[TopicPartition]) -> Iterator[confluent_kafka.Message]:
        """The messages of these partitions of one topic, from the places on."""
        ends = {place.partition: self._end(place) for place in places}
        left = {place.partition for place in places if place.offset < ends[place.partition]}
        self.client.assign([place for place in places if place.partition in left])
        silent = 0
        while left:
            messages = self.client.consume(BATCH, WAIT_S)
            for inner in messages:
                partition, offset = inner.partition() or 0, inner.offset() or 0
                error = inner.error()
                if error is not None:
                    if self._is_end(error):
                        left.discard(partition)
                elif offset >= ends[partition]:
                    left.discard(partition)
                elif partition in left:
                    yield inner
            if messages:
                silent = 0
                continue
            # What was fetched has been handed out, so a partition whose next fetch is beyond its end is done.
            beyond = {partition for partition in left if self._next_fetch.get(partition, -1) >= ends[partition]}
            left -= beyond
            silent = 0 if beyond else silent + 1
            if silent > SILENCE_TURNS:
                raise Unreachable(f"{self._doing}: no answer within {SILENCE_TURNS * WAIT_S:g} s")

    def _end(self, place: TopicPartition) -> int:
        """The end of a partition for this reader; before any offset if it has nothing."""
        try:
            bounds = self.client.get_watermark_offsets(place, timeout=ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise explained(cause_of(error), self._doing) from error
        if bounds is None:
            raise Unreachable(f"{self._doing}: no answer within {ANSWER_TIMEOUT_S:g} s")
        low, high = bounds
        return int(high) if low < high else NOTHING

    def _is_end(self, error: KafkaError) -> bool:
        """Whether this is librdkafka's report of an end; an error that does not pass is raised."""
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.retriable() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:  # it is new to that broker
            return False
        raise explained(error, self._doing)

    def _learn(self, statistics: str) -> None:
        for topic in json.loads(statistics)["topics"].values():
            for partition in topic["partitions"].values():
                self._next_fetch[partition["partition"]] = partition["next_offset"]
