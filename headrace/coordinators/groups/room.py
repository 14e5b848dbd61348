"""How much memory the groups of a shard take, and whether there is room for more.

What the journal says is weighed by its records (`DurableGroups`), and what only lives in memory, such as members of
classic groups, by group. Whoever is known already goes on when the room is used up: members send heartbeats, leave and
join again with what they said before, and a group commits where it has committed before. New members, new groups and
new offsets are refused with COORDINATOR_NOT_AVAILABLE, which clients retry. Nothing is thrown away to make room,
because a lost offset would move a consumer.

Asked by the groups shard before it decides, and told after that.
"""

from __future__ import annotations

import logging

from headrace.coordinators.groups.commands import CommitInTransaction, CommitOffsets, Join
from headrace.coordinators.groups.consumer_commands import LEAVE, LEAVE_FOR_NOW, ConsumerHeartbeat
from headrace.coordinators.groups.durable import DurableGroups
from headrace.coordinators.groups.group import GROUP_BYTES, MEMBER_BYTES, Group, protocols_bytes
from headrace.coordinators.groups.pending_offsets import OFFSET_BYTES
from headrace.coordinators.groups.share_commands import ShareHeartbeat
from headrace.model.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

SAID_EVERY_MS = 60_000
NO_ROOM = "The coordinator has no memory left for new members, groups and offsets; try again later."


class Room:
    def __init__(self, durable: DurableGroups, max_bytes: int) -> None:
        self._durable = durable
        self._max_bytes = max_bytes
        self._live: dict[str, int] = {}  # by classic group
        self._live_bytes = 0
        self._said_ms = -SAID_EVERY_MS

    @property
    def used_bytes(self) -> int:
        return self._durable.cost_bytes + self._live_bytes

    def weigh(self, group_id: str, group: Group | None) -> None:
        """The classic group may have changed; None: there is none any more."""
        self._live_bytes -= self._live.pop(group_id, 0)
        if group is not None:
            self._live[group_id] = cost_bytes = group.cost_bytes
            self._live_bytes += cost_bytes

    # --- is there room? ---------------------------------------------------------------------------------------------

    def for_member(self, command: Join, group: Group | None, now_ms: int) -> bool:
        """For a member, or what a known one says of itself now."""
        known = group.members.get(command.member_id) if group is not None else None
        before = MEMBER_BYTES + protocols_bytes(known.protocols) if known is not None else 0
        new_group = 0 if group is not None else GROUP_BYTES + len(command.group_id)
        return self._has(new_group + MEMBER_BYTES + protocols_bytes(command.protocols) - before, now_ms)

    def for_subscription(self, command: ConsumerHeartbeat | ShareHeartbeat, now_ms: int) -> bool:
        """For a member of a consumer or share group, or what a known one subscribes to now."""
        if command.epoch in (LEAVE, LEAVE_FOR_NOW):
            return True
        durable = self._durable
        groups = durable.shares if isinstance(command, ShareHeartbeat) else durable.consumers
        group = groups.get(command.group_id)
        known = group.members.get(command.member_id) if group is not None else None
        if known is None:
            return self._has(MEMBER_BYTES + len(command.group_id) + _names_bytes(command.topics), now_ms)
        if command.topics is None:
            return True
        return self._has(_names_bytes(command.topics) - _names_bytes(known.topics), now_ms)

    def for_offsets(self, command: CommitOffsets | CommitInTransaction, now_ms: int) -> bool:
        stored = self._durable.offsets_of(command.group_id)
        needed = 0
        for asked in command.offsets:
            before = stored.get(TopicPartition(asked.topic, asked.partition))
            needed += len(asked.metadata)
            needed += OFFSET_BYTES + len(command.group_id) if before is None else -len(before.metadata)
        return self._has(needed, now_ms)

    def _has(self, needed_bytes: int, now_ms: int) -> bool:
        if needed_bytes <= 0 or self.used_bytes + needed_bytes <= self._max_bytes:
            return True
        if abs(now_ms - self._said_ms) >= SAID_EVERY_MS:
            self._said_ms = now_ms
            logger.warning(
                "groups of one partition of __consumer_offsets take the %d bytes that headrace.group.state.max.bytes "
                "allows; new members, groups and offsets are refused: delete groups, or allow more",
                self._max_bytes,
            )
        return False


def _names_bytes(names: tuple[str, ...] | None) -> int:
    return sum(map(len, names or ()))
