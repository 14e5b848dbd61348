"""The durable state of a groups shard: committed offsets, offsets in open transactions, the last written generation of
each classic group, and consumer groups and share groups, which are durable as a whole.

Only `apply` changes it, with records that are in the journal. So it is the same after a crash, on another broker, and
in the property test that compares the two. The shard's decisions read it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.coordinators.groups.commands import CommittedOffset
from headrace.coordinators.groups.consumer_group import ConsumerGroup
from headrace.coordinators.groups.consumer_records import (
    EPOCH,
    PATTERN,
    SUBSCRIPTION,
    ConsumerKey,
    read_consumer_value,
)
from headrace.coordinators.groups.pending_offsets import PendingOffsets
from headrace.coordinators.groups.records import (
    OffsetKey,
    StoredGroup,
    offset_record,
    read_group,
    read_key,
    read_offset,
)
from headrace.coordinators.groups.share_group import ShareGroup
from headrace.coordinators.groups.share_records import SHARE_EPOCH, SHARE_KINDS, SHARE_MEMBER, read_share_value
from headrace.coordinators.shard import Record
from headrace.model.journal_entry import NO_PRODUCER_ID
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import Malformed

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, CommittedOffset]

_SAYING = {kind.to_bytes(2) for kind in (SUBSCRIPTION, PATTERN, SHARE_MEMBER)}
RECORD_BYTES = 500  # of what one record says, in memory, beside the bytes of the record


class DurableGroups:
    def __init__(self) -> None:
        self.groups: dict[str, StoredGroup] = {}
        self.offsets: dict[str, Offsets] = {}
        self.pending = PendingOffsets()
        self.consumers: dict[str, ConsumerGroup] = {}
        self.shares: dict[str, ShareGroup] = {}
        self._sizes: dict[bytes, int] = {}  # by key, of all records that count
        self._bytes = 0
        self._said: dict[str, int] = {}  # by consumer or share group, of what its members say

    @property
    def cost_bytes(self) -> int:
        """What all of it takes in memory, nearly."""
        return self._bytes + self.pending.cost_bytes

    def _weigh(self, key: bytes, value: bytes | None) -> None:
        self._bytes -= self._sizes.pop(key, 0)
        if value is not None:
            self._sizes[key] = size = _cost_bytes(key, value)
            self._bytes += size

    def said_bytes(self, group_id: str, records: Sequence[Record] = ()) -> int:
        """How long the records of what the members of such a group subscribe to are, and would be with these."""
        total = self._said.get(group_id, 0)
        for key, value in dict(records).items():
            if key[:2] in _SAYING:
                before = self._sizes.get(key, RECORD_BYTES) - RECORD_BYTES
                total += (0 if value is None else len(key) + len(value)) - before
        return total

    def apply(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        try:
            if producer_id == NO_PRODUCER_ID:
                self._apply(key, value)
            else:
                self._apply_pending(producer_id, key, value)
        except Malformed as error:
            # An unreadable record, written by a newer version, must not make the group lose all the others.
            logger.warning("skipped: %s", error)

    def apply_end(self, producer_id: int, commit: bool) -> None:
        """The producer's transaction has ended."""
        for (group_id, topic, partition), offset in self.pending.ended(producer_id, commit):
            self.offsets.setdefault(group_id, {})[TopicPartition(topic, partition)] = offset
            self._weigh(*offset_record(group_id, topic, partition, offset))

    def _apply_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        what = read_key(key)
        if not isinstance(what, OffsetKey) or value is None:
            raise Malformed("a record of the group coordinator is in a transaction and not an offset")
        self.pending.add(producer_id, (what.group_id, what.topic, what.partition), read_offset(value))

    def _apply(self, key: bytes, value: bytes | None) -> None:
        what = read_key(key)
        if isinstance(what, ConsumerKey) and key[:2] in _SAYING:
            self._said[what.group_id] = self.said_bytes(what.group_id, [(key, value)])
        self._weigh(key, value)
        if isinstance(what, OffsetKey):
            place = TopicPartition(what.topic, what.partition)
            self.pending.overtaken((what.group_id, *place))
            if value is not None:
                self.offsets.setdefault(what.group_id, {})[place] = read_offset(value)
            elif what.group_id in self.offsets:
                self.offsets[what.group_id].pop(place, None)
                if not self.offsets[what.group_id]:
                    del self.offsets[what.group_id]
        elif isinstance(what, ConsumerKey) and what.type in SHARE_KINDS:
            self._apply_share(what, value)
        elif isinstance(what, ConsumerKey):
            self._apply_consumer(what, value)
        elif value is not None:
            self.groups[what.group_id] = read_group(value)
        else:
            self.groups.pop(what.group_id, None)

    def _apply_consumer(self, key: ConsumerKey, value: bytes | None) -> None:
        """Compaction keeps the last record of each key, so a group's records may start with any type."""
        if value is not None:
            group = self.consumers.setdefault(key.group_id, ConsumerGroup(key.group_id))
            group.apply(key, read_consumer_value(key.type, value))
        elif key.type == EPOCH:
            self.consumers.pop(key.group_id, None)
            self._said.pop(key.group_id, None)
        elif key.group_id in self.consumers:
            self.consumers[key.group_id].apply(key, None)

    def _apply_share(self, key: ConsumerKey, value: bytes | None) -> None:
        if value is not None:
            group = self.shares.setdefault(key.group_id, ShareGroup(key.group_id))
            group.apply(key, read_share_value(key.type, value))
        elif key.type == SHARE_EPOCH:
            self.shares.pop(key.group_id, None)
            self._said.pop(key.group_id, None)
        elif key.group_id in self.shares:
            self.shares[key.group_id].apply(key, None)

    def names(self) -> list[str]:
        """Every classic group that has any records, in the order of their first one."""
        traces = dict.fromkeys([*self.groups, *self.offsets, *self.pending.groups()])
        return [name for name in traces if name not in self.consumers and name not in self.shares]

    def has(self, group_id: str) -> bool:
        kept = any(group_id in known for known in (self.groups, self.offsets, self.consumers, self.shares))
        return kept or any(self.pending.of(group_id))

    def offsets_of(self, group_id: str) -> Offsets:
        return self.offsets.get(group_id, {})


def _cost_bytes(key: bytes, value: bytes) -> int:
    return RECORD_BYTES + len(key) + len(value)
