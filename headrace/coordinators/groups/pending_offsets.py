"""Offsets that producers have sent in transactions that are still open (KIP-447).

They are kept separately until the end of the transaction is in the journal. Then they become committed offsets or are
dropped. The order in the journal decides: for a partition of a group, the offset that was written last wins, in
whatever order the transactions end. So a slow transaction never moves a group back. Owned by `DurableGroups`, which
passes it the records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headrace.coordinators.groups.commands import CommittedOffset
from headrace.model.topic_partition import TopicPartition

Spot = tuple[str, str, int]  # group, topic, partition
OFFSET_BYTES = 700  # of one offset, without its names and its metadata


class PendingOffsets:
    def __init__(self) -> None:
        self._by_producer: dict[int, dict[Spot, tuple[int, CommittedOffset]]] = {}
        self._producers: dict[str, dict[TopicPartition, set[int]]] = {}  # by group and partition, who has sent some
        self._count = 0
        self.cost_bytes = 0
        """What all of them take in memory, nearly."""

    def add(self, producer_id: int, spot: Spot, offset: CommittedOffset) -> None:
        self._count += 1
        before = self._by_producer.get(producer_id, {}).get(spot)
        self.cost_bytes += _cost_bytes(spot, offset) - (0 if before is None else _cost_bytes(spot, before[1]))
        self._by_producer.setdefault(producer_id, {})[spot] = (self._count, offset)
        places = self._producers.setdefault(spot[0], {})
        places.setdefault(TopicPartition(spot[1], spot[2]), set()).add(producer_id)

    def overtaken(self, spot: Spot) -> None:
        """A newer offset was written for it than all pending ones."""
        for producer_id in list(self._senders(spot)):
            self._drop(producer_id, spot)
            self._forget(spot, producer_id)

    def ended(self, producer_id: int, commit: bool) -> list[tuple[Spot, CommittedOffset]]:
        """The offsets that take effect now, because the producer's transaction has ended."""
        entries = self._by_producer.pop(producer_id, {})
        for spot, (_, offset) in entries.items():
            self.cost_bytes -= _cost_bytes(spot, offset)
            self._forget(spot, producer_id)
        if not commit:
            return []
        for spot, (number, _) in entries.items():
            for other in list(self._senders(spot)):
                if self._by_producer[other][spot][0] < number:
                    self._drop(other, spot)
                    self._forget(spot, other)
        return [(spot, offset) for spot, (_, offset) in entries.items()]

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        return TopicPartition(topic, partition) in self._producers.get(group_id, {})

    def of(self, group_id: str) -> Iterator[TopicPartition]:
        """Every partition with a pending offset of the group."""
        return iter(self._producers.get(group_id, {}))

    def groups(self) -> list[str]:
        return list(self._producers)

    def __bool__(self) -> bool:
        return bool(self._producers)

    def _drop(self, producer_id: int, spot: Spot) -> None:
        entries = self._by_producer[producer_id]
        self.cost_bytes -= _cost_bytes(spot, entries.pop(spot)[1])
        if not entries:
            del self._by_producer[producer_id]

    def _senders(self, spot: Spot) -> Collection[int]:
        return self._producers.get(spot[0], {}).get(TopicPartition(spot[1], spot[2]), ())

    def _forget(self, spot: Spot, producer_id: int) -> None:
        places, place = self._producers[spot[0]], TopicPartition(spot[1], spot[2])
        places[place].discard(producer_id)
        if not places[place]:
            del places[place]
        if not places:
            del self._producers[spot[0]]


def _cost_bytes(spot: Spot, offset: CommittedOffset) -> int:
    return OFFSET_BYTES + len(spot[0]) + len(spot[1]) + len(offset.metadata)
