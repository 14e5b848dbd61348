"""Committed offsets: who may commit, read and delete them, and when they expire.

Offsets of an empty group are kept for `offsets_retention_ms`, and at least as long as the records of its topics, so
that a consumer that is away for less than that can resume. Offsets of topics that a live member subscribes to do not
expire. Called by the groups shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.coordinators.groups.commands import (
    UNSTABLE,
    CommitInTransaction,
    CommitOffsets,
    CommittedOffset,
    DeleteOffsets,
    FetchOffsets,
)
from headrace.coordinators.groups.consumer_group import ConsumerGroup
from headrace.coordinators.groups.durable import DurableGroups, Offsets
from headrace.coordinators.groups.group import Group, State
from headrace.coordinators.groups.records import offset_record, offset_tombstone
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.subscription import CONSUMER
from headrace.coordinators.shard import Outcome, Record
from headrace.model.image import ClusterImage
from headrace.model.topic_config import topic_config
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode


class Topics(Protocol):
    def image(self) -> ClusterImage: ...


class GroupOffsets:
    def __init__(self, durable: DurableGroups, settings: GroupSettings, topics: Topics) -> None:
        self._durable = durable
        self._settings = settings
        self._topics = topics

    # --- on request -------------------------------------------------------------------------------------------------

    def commit(self, group: Group, command: CommitOffsets, outcome: Outcome, now_ms: int) -> None:
        problem = _may_not_commit(group, command) or ErrorCode.none
        self.keep(command, [problem] * len(command.offsets), outcome, now_ms)

    def commit_in_transaction(self, group: Group, command: CommitInTransaction, outcome: Outcome, now_ms: int) -> None:
        """They are written now and take effect when the end of the transaction is in the journal."""
        outcome.producer = (command.producer_id, command.producer_epoch)
        problem = _may_not_send(group, command) or ErrorCode.none
        self.keep(command, [problem] * len(command.offsets), outcome, now_ms)

    def keep(
        self,
        command: CommitOffsets | CommitInTransaction,
        problems: Sequence[ErrorCode],
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """Writes the offsets that have no error; of a partition that is named repeatedly, the last one."""
        outcome.reply = []
        records: dict[TopicPartition, Record] = {}
        for asked, problem in zip(command.offsets, problems, strict=True):
            if problem is ErrorCode.none and len(asked.metadata.encode()) > self._settings.max_offset_metadata_bytes:
                problem = ErrorCode.offset_metadata_too_large
            if problem is ErrorCode.none:
                committed = CommittedOffset(asked.offset, asked.leader_epoch, asked.metadata, now_ms, asked.topic_id)
                place = TopicPartition(asked.topic, asked.partition)
                records[place] = offset_record(command.group_id, asked.topic, asked.partition, committed)
            outcome.reply.append(problem)
        outcome.records += records.values()

    def fetch(self, command: FetchOffsets) -> Offsets:
        stored, topics = self._durable.offsets_of(command.group_id), self._topics.image().topics
        found = {
            place: stored[place]
            for place in (stored if command.partitions is None else command.partitions)
            if place in stored and (place[0] not in topics or topics[place[0]].id == stored[place].topic_id)
        }
        if command.require_stable and self._durable.pending:
            pending = set(self._durable.pending.of(command.group_id))
            asked = pending if command.partitions is None else pending.intersection(command.partitions)
            found |= dict.fromkeys(asked, UNSTABLE)
        return found

    def delete(self, group: Group, command: DeleteOffsets, outcome: Outcome) -> None:
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            outcome.reply = ErrorCode.non_empty_group
            return
        self.delete_unused(group.id, group.subscriptions(), command, outcome)

    def delete_unused(
        self, group_id: str, subscribed: frozenset[str] | None, command: DeleteOffsets, outcome: Outcome
    ) -> None:
        """`subscribed`: the topics that members of the group subscribe to, None if unknown."""
        stored = self._durable.offsets_of(group_id)
        outcome.reply = []
        for topic, partition in command.partitions:
            if subscribed is None or topic in subscribed:
                outcome.reply.append(ErrorCode.group_subscribed_to_topic)
                continue
            if (topic, partition) in stored or self._durable.pending.has(group_id, topic, partition):
                outcome.write(offset_tombstone(group_id, topic, partition))
            outcome.reply.append(ErrorCode.none)

    def forget_group(self, group_id: str, outcome: Outcome) -> None:
        for topic, partition in dict.fromkeys(
            [*self._durable.offsets_of(group_id), *self._durable.pending.of(group_id)]
        ):
            outcome.write(offset_tombstone(group_id, topic, partition))

    def orphans(self, topic: str) -> list[tuple[str, int]]:
        """(group, partition) of every offset that belongs to a deleted topic of this name."""
        image = self._topics.image()
        return [
            (group_id, partition)
            for group_id, offsets in self._durable.offsets.items()
            for (name, partition), committed in offsets.items()
            if name == topic and _orphaned(name, committed, image)
        ]

    # --- with time --------------------------------------------------------------------------------------------------

    def expired(self, group: Group | ConsumerGroup, now_ms: int) -> list[TopicPartition]:
        """The group's offsets that have expired, or whose topic was deleted."""
        image = self._topics.image()
        offsets, orphans = Offsets(), list[TopicPartition]()
        for place, committed in self._durable.offsets_of(group.id).items():
            if _orphaned(place[0], committed, image):
                orphans.append(place)  # the coordinator crashed during its deletion
            else:
                offsets[place] = committed
        return orphans + self._outlived(group, offsets, now_ms)

    def _outlived(self, group: Group | ConsumerGroup, offsets: Offsets, now_ms: int) -> list[TopicPartition]:
        subscribed, emptied_ms = self._use(group) if offsets else (None, 0)
        if subscribed is None:
            return []
        idle_ms = {
            place: now_ms - max(emptied_ms, committed.commit_ms)
            for place, committed in offsets.items()
            if place[0] not in subscribed and not self._durable.pending.has(group.id, *place)
        }
        if not idle_ms or max(idle_ms.values()) < self._settings.offsets_retention_ms:
            return []  # the usual case: the topics need not be checked
        retention_ms = self._retention_ms({topic for topic, _ in offsets})
        if retention_ms is None:
            return []
        return [place for place, idle in idle_ms.items() if idle >= retention_ms]

    def _use(self, group: Group | ConsumerGroup) -> tuple[frozenset[str] | None, int]:
        """The topics that members use (None if unknown), and since when there are no members."""
        if isinstance(group, ConsumerGroup):
            return group.subscriptions(), 0 if group.members else group.plan_ms
        if group.state in (State.PREPARING, State.COMPLETING):
            return None, 0
        stored = self._durable.groups.get(group.id)
        emptied_ms = stored.state_ms if stored is not None and group.state is State.EMPTY else 0
        return group.subscriptions(), emptied_ms

    def _retention_ms(self, names: set[str]) -> int | None:
        """How long offsets on these topics are kept; None: forever, because a topic keeps its records forever.

        Each broker keeps the records of its replicas by its own settings, so the one that keeps them longest counts.
        """
        image = self._topics.image()
        longest_ms = self._settings.offsets_retention_ms
        for name in names:
            topic = image.base_of(image.topics[name]) or image.topics[name]
            for broker in {broker for partition in topic.partitions for broker in partition.replicas}:
                config = topic_config(topic.settings, self._settings.file.in_force(image, broker))
                if not config.deleted or config.retention_ms < 0:
                    return None
                longest_ms = max(longest_ms, config.retention_ms)
        return longest_ms


def _orphaned(topic: str, committed: CommittedOffset, image: ClusterImage) -> bool:
    known = image.topics.get(topic)
    return known is None or known.id != committed.topic_id


def _may_not_send(group: Group, command: CommitInTransaction) -> ErrorCode | None:
    """A producer that names no member is accepted: its transaction fences it (KIP-447)."""
    if command.generation < 0 and not command.member_id and command.instance_id is None:
        return None
    if command.generation < 0 and group.state is State.EMPTY:
        return None
    problem = group.stranger(command.member_id, command.instance_id)
    if problem is not None:
        return problem
    return ErrorCode.illegal_generation if command.generation != group.generation else None


def _may_not_commit(group: Group, command: CommitOffsets) -> ErrorCode | None:
    """Members commit in their generation; consumers that assign themselves only while the group is empty."""
    if command.generation < 0 and group.state is State.EMPTY:
        return None
    if command.generation < 0 and not command.member_id and command.instance_id is None:
        return ErrorCode.unknown_member_id
    problem = group.stranger(command.member_id, command.instance_id)
    if problem is not None:
        return problem
    if command.generation != group.generation:
        return ErrorCode.illegal_generation
    return ErrorCode.rebalance_in_progress if group.state is State.COMPLETING else None
