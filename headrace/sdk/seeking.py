"""Where to read next: from the start, the end, an offset, a time.

Made by the consumer for one call. Every target is resolved to an offset first, so that the ledger knows the position of
each partition and a commit stores it. A group member has partitions only after the first rebalance, so these calls wait
for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.sdk.errors import SdkError, cause_of, explained
from headrace.sdk.ledger import Ledger, Partition

Moment = datetime | int

ANSWER_TIMEOUT_S = 10.0
ASSIGNMENT_TURNS = 300  # of about 0.1 s
FIRST_FETCH_TURNS = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Seeking:
    def __init__(self, client: confluent_kafka.Consumer, ledger: Ledger, serve: Callable[[], None], doing: str) -> None:
        self._client = client
        self._ledger = ledger
        self._serve = serve  # lets the client run its callbacks
        self._doing = doing

    def to_start(self) -> None:
        self.to_offsets({place: self._bounds(place)[0] for place in self._assigned()})

    def to_end(self) -> None:
        self.to_offsets({place: self._bounds(place)[1] for place in self._assigned()})

    def to_time(self, moment: Moment) -> None:
        at_ms = moment if isinstance(moment, int) else _epoch_ms(moment)
        asked = [TopicPartition(*place, at_ms) for place in self._assigned()]
        try:
            found = self._client.offsets_for_times(asked, timeout=ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise explained(cause_of(error), self._doing) from error
        for each in found:
            if each.error is not None:
                raise explained(each.error, f"{self._doing}: looking up a time in {each.topic}-{each.partition}")
        offsets = {(each.topic, each.partition): each.offset for each in found}
        # Negative: no record is that late, so the answer is the end.
        self.to_offsets({place: at if at >= 0 else self._bounds(place)[1] for place, at in offsets.items()})

    def to_offsets(self, offsets: Mapping[Partition, int]) -> None:
        absent = set(offsets) - set(self._assigned())
        if absent:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(absent))
            raise SdkError(
                f"{self._doing}: {names} is not assigned to this member; seek only in partitions of assignment()"
            )
        for place, offset in offsets.items():
            self._seek(TopicPartition(*place, offset))
        self._ledger.move(offsets)

    def rewind(self, offsets: Mapping[Partition, int]) -> None:
        """Seek back in partitions that were being read; one that was revoked meanwhile is skipped."""
        for place, offset in offsets.items():
            try:
                self._client.seek(TopicPartition(*place, offset))
            except KafkaException as error:
                if cause_of(error).code() != KafkaError._STATE:
                    raise explained(cause_of(error), self._doing) from error
        self._ledger.forget(offsets)

    def _seek(self, target: TopicPartition) -> None:
        self._wait_for_first_fetch(target)
        for _ in range(ASSIGNMENT_TURNS):
            try:
                self._client.seek(target)
                return
            except KafkaException as error:
                if cause_of(error).code() != KafkaError._STATE:
                    raise explained(cause_of(error), self._doing) from error
                self._serve()  # just assigned, and not fetched yet
        raise SdkError(f"{self._doing}: {target.topic}-{target.partition} was not ready in time; try again")

    def _wait_for_first_fetch(self, target: TopicPartition) -> None:
        """Wait until a newly assigned partition has resolved its starting offset: that answer would undo the seek.

        The high watermark is known once the first fetch was answered. If no answer comes (a paused partition, an
        unreachable broker) the seek is tried anyway.
        """
        for _ in range(FIRST_FETCH_TURNS):
            known = self._client.get_watermark_offsets(target, cached=True)
            if known is not None and known[1] >= 0:
                return
            self._serve()

    def _assigned(self) -> list[Partition]:
        for _ in range(ASSIGNMENT_TURNS):
            places = [(each.topic, each.partition) for each in self._client.assignment()]
            if places:
                return places
            self._serve()
        raise SdkError(f"{self._doing}: no partition was assigned: does the group have more members than partitions?")

    def _bounds(self, place: Partition) -> tuple[int, int]:
        try:
            return self._client.get_watermark_offsets(TopicPartition(*place), timeout=ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise explained(cause_of(error), self._doing) from error


def _epoch_ms(moment: datetime) -> int:
    """Epoch milliseconds; a datetime without a time zone is local time, as everywhere in Python."""
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
