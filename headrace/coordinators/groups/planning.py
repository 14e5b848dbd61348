"""When a consumer group needs a new target assignment, and how it is computed.

The group's epoch rises when a member joins, leaves or changes its subscription, and when the topics of the group
change: one is created, deleted, gets more partitions, or starts to match a pattern. The first heartbeat after that
computes the target assignment for the new epoch, and from then on every member moves towards its part of it. Called by
the modules that handle members; all changes go through the draft.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping

from headrace.coordinators.groups.assignors.range import assign_range
from headrace.coordinators.groups.assignors.uniform import assign_uniform
from headrace.coordinators.groups.assignors.wishes import Assignor, Wish
from headrace.coordinators.groups.consumer_group import ConsumerGroup
from headrace.coordinators.groups.consumer_records import PATTERN, TARGET, ResolvedPattern
from headrace.coordinators.groups.draft import Draft
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.topic_patterns import TopicPatterns
from headrace.model.image import ClusterImage

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


class Planning:
    def __init__(self, topics: Topics, assignors: tuple[str, ...], monotonic: Callable[[], float]) -> None:
        self.assignors = assignors  # the first one is the default
        self._topics = topics
        self._patterns = TopicPatterns(monotonic)
        self._seen: dict[str, int] = {}  # the metadata version that each group was last checked against

    def assignor_of(self, group: ConsumerGroup) -> str:
        preferred = group.preferred_assignor()
        return preferred if preferred in self.assignors else self.assignors[0]

    def bump(self, draft: Draft, now_ms: int) -> None:
        """A member joined, left, or changed its subscription: a new target assignment is needed."""
        resolved = self._resolve_patterns(draft, now_ms)
        draft.put_epoch(draft.group.epoch + 1, self._hash(draft.group))
        self._look_again(draft.group.id, resolved)

    def follow_topics(self, draft: Draft, now_ms: int) -> None:
        """A new target assignment is also needed if the group's topics have changed since the last check."""
        version = self._topics.image().version
        if self._seen.get(draft.group.id) == version:
            return
        resolved = self._resolve_patterns(draft, now_ms)
        found = self._hash(draft.group)
        if found != draft.group.metadata_hash:
            draft.put_epoch(draft.group.epoch + 1, found)
        self._look_again(draft.group.id, resolved)

    def make_plan(self, draft: Draft, now_ms: int) -> None:
        """Computes the target assignment for the group's epoch if there is none yet; only changed parts are written."""
        group, image = draft.group, self._topics.image()
        topics = image.topics
        if group.epoch <= group.plan_epoch:
            return
        counts: dict[uuid.UUID, int] = {}
        for name in group.subscriptions():
            if name in topics:
                counts[topics[name].id] = len(image.partitions_of(topics[name]))
        wishes = {
            member_id: Wish(
                frozenset(topics[name].id for name in group.topics_of(member) if name in topics),
                group.targets.get(member_id, {}),
                member.instance_id,
            )
            for member_id, member in group.members.items()
        }
        plan = ASSIGNORS[self.assignor_of(group)](wishes, counts)
        for member_id, parts in plan.items():
            if group.targets.get(member_id) != parts:
                draft.put(TARGET, member_id, parts)
        draft.put_plan_epoch(group.epoch, now_ms)

    def _look_again(self, group_id: str, resolved: bool) -> None:
        if resolved:
            self._seen[group_id] = self._topics.image().version
        else:
            self._seen.pop(group_id, None)

    def forget(self, group_id: str) -> None:
        self._seen.pop(group_id, None)

    def _resolve_patterns(self, draft: Draft, now_ms: int) -> bool:
        """Whether there was time to try all names; if not, the next heartbeat goes on."""
        group, image = draft.group, self._topics.image()
        used = {member.pattern for member in group.members.values() if member.pattern is not None}
        for pattern in sorted(used):
            found = self._patterns.resolve(pattern, image.topics.keys())
            if found is None:
                return False
            if pattern not in group.patterns or group.patterns[pattern].topics != found:
                draft.put(PATTERN, pattern, ResolvedPattern(found, image.version, now_ms))
        for pattern in group.patterns.keys() - used:
            draft.remove_pattern(pattern)
        return True

    def _hash(self, group: ConsumerGroup) -> int:
        return hash_of_topics(group.subscriptions(), self._topics.image())


def hash_of_topics(names: Iterable[str], image: ClusterImage) -> int:
    """A hash of these topics as they are now; if it changes, their group needs a new target assignment."""
    topics = image.topics
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        if name in topics:
            digest.update(topics[name].id.bytes + len(image.partitions_of(topics[name])).to_bytes(4))
    return int.from_bytes(digest.digest(), signed=True)
