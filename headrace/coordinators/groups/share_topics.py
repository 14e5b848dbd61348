"""Which share partitions of a share group have state at the share coordinator, and bringing that about.

A topic that a member subscribes to is first initialized: a record says so, the share coordinator is asked for all its
partitions, and another record says that they are there. Only then are they given out. The start offset is open (-1)
for a topic that is new to the group, so that the partition's leader chooses it by `share.auto.offset.reset`. Partitions
that are added to a known topic start at 0, because `latest` would skip what was written before anybody noticed them.

Whatever was begun is in the journal, and is begun again after a failure and after loading: the share coordinator takes
the same request twice. Invariant: a topic of the group is initialized as a whole, so what is known of it tells which
start offset its other partitions get.

Rooms outside do the asking, as follow-ups of decisions; called by `share_groups.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.share_commands import (
    DeleteStates,
    InitializeStates,
    ListStates,
    PrepareForget,
    PrepareSeek,
    RetryStates,
    StatesDeleted,
    StatesFailed,
    StatesInitialized,
    StatesInTheWay,
    StatesOf,
    StatesPut,
    StateWork,
)
from headrace.coordinators.groups.share_group import ShareDraft, ShareGroup
from headrace.coordinators.groups.share_records import SharedTopics, TopicStates
from headrace.coordinators.shard import Outcome
from headrace.model.image import ClusterImage
from headrace.model.share_state import NO_START
from headrace.wire.errors import ErrorCode

FIRST_OFFSET = 0
_Topics = Mapping[uuid.UUID, TopicStates]


class ShareTopics:
    def __init__(
        self,
        groups: Mapping[str, ShareGroup],
        settings: GroupSettings,
        topics: Topics,
        plan_anew: Callable[[ShareDraft, Outcome], None],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._topics = topics
        self._plan_anew = plan_anew
        self._busy: set[tuple[str, uuid.UUID]] = set()  # the share coordinator is being asked, or it is too soon
        self.rules: dict[type, Callable[[Any, Outcome, int], None]] = {
            ListStates: self._list,
            PrepareSeek: self._prepare_seek,
            StatesPut: self._put,
            PrepareForget: self._prepare_forget,
            StatesInitialized: self._initialized,
            StatesDeleted: self._deleted,
            StatesFailed: self._failed,
            RetryStates: self._retry,
        }

    # --- what is needed ---------------------------------------------------------------------------------------------

    def ready(self, group: ShareGroup) -> dict[uuid.UUID, frozenset[int]]:
        """What may be given out, by topic."""
        known = self._topics.image().topics_by_id
        return {topic_id: topic.partitions for topic_id, topic in group.topics.initialized.items() if topic_id in known}

    def begin(self, draft: ShareDraft) -> None:
        """Writes down which partitions of subscribed topics are to be initialized, if there are new ones."""
        topics, image = draft.group.topics, self._topics.image()
        wanted: dict[uuid.UUID, TopicStates] = {}
        for name in sorted(draft.group.subscriptions() & image.topics.keys()):
            topic = image.topics[name]
            if topic.id in topics.deleting:
                continue  # first the old state must be gone
            everything = frozenset(partition.index for partition in topic.partitions)
            missing = everything - _partitions(topics.initialized, topic.id)
            if missing - _partitions(topics.initializing, topic.id):
                wanted[topic.id] = TopicStates(name, missing)
        if wanted:
            draft.put_topics(SharedTopics({**topics.initializing, **wanted}, topics.initialized, topics.deleting))

    def start(self, group: ShareGroup, outcome: Outcome) -> None:
        """Has the share coordinator asked for what is written down, once the records are committed."""
        topics = group.topics
        for topic_id, topic in topics.initializing.items():
            start = FIRST_OFFSET if topic_id in topics.initialized else NO_START
            work = InitializeStates(group.id, _states(topic_id, topic), group.epoch, start)
            if topic_id not in topics.deleting:
                self._ask(work, outcome)
        for topic_id, topic in topics.deleting.items():
            self._ask(DeleteStates(group.id, _states(topic_id, topic)), outcome)

    def _ask(self, work: StateWork, outcome: Outcome) -> None:
        place = (work.group_id, work.states.topic_id)
        if place not in self._busy:
            self._busy.add(place)
            outcome.follow_ups.append(work)

    # --- what has been done -----------------------------------------------------------------------------------------

    def _initialized(self, command: StatesInitialized, outcome: Outcome, now_ms: int) -> None:
        group, states = self._groups.get(command.group_id), command.states
        self._busy.discard((command.group_id, states.topic_id))
        if group is None:
            return
        draft, topics = ShareDraft(group), group.topics
        begun = topics.initializing.get(states.topic_id)
        if begun is not None and begun.partitions.issubset(states.partitions):
            before = _partitions(topics.initialized, states.topic_id)
            done = TopicStates(begun.name, before | begun.partitions)
            initialized = {**topics.initialized, states.topic_id: done}
            rest = _without(topics.initializing, states.topic_id)
            draft.put_topics(SharedTopics(rest, initialized, topics.deleting))
            self._plan_anew(draft, outcome)
            draft.carry_into(outcome)
        self.start(draft.group, outcome)

    def _deleted(self, command: StatesDeleted, outcome: Outcome, now_ms: int) -> None:
        group, topic_id = self._groups.get(command.group_id), command.states.topic_id
        self._busy.discard((command.group_id, topic_id))
        outcome.reply = ErrorCode.none
        if group is None:
            return
        draft, topics = ShareDraft(group), group.topics
        if topic_id in topics.deleting:
            draft.put_topics(SharedTopics(topics.initializing, topics.initialized, _without(topics.deleting, topic_id)))
            self.begin(draft)
            draft.carry_into(outcome)
        self.start(draft.group, outcome)

    def _failed(self, command: StatesFailed, outcome: Outcome, now_ms: int) -> None:
        """Not asked again at once: the topic stays busy until the timer rings."""
        retry = RetryStates(command.group_id)
        outcome.set_timer(("share states", command.group_id), self._settings.share_retry_ms, retry)

    def _retry(self, command: RetryStates, outcome: Outcome, now_ms: int) -> None:
        self._busy = {place for place in self._busy if place[0] != command.group_id}
        group = self._groups.get(command.group_id)
        if group is not None:
            self.start(group, outcome)

    # --- deleted topics and groups ----------------------------------------------------------------------------------

    def forget_topics(self, most: int, outcome: Outcome) -> bool:
        """Deletes the state of topics that are gone, of so many groups at most; True if there are more."""
        known = self._topics.image().topics_by_id
        for group in self._groups.values():
            topics = group.topics
            gone = (topics.initializing.keys() | topics.initialized.keys()) - known.keys()
            if not gone:
                continue
            if len(outcome.records) >= most:
                return True
            draft = ShareDraft(group)
            draft.put_topics(_to_delete(topics, gone))
            self._plan_anew(draft, outcome)
            draft.carry_into(outcome)
            self.start(draft.group, outcome)
        return False

    def forget_all(self, draft: ShareDraft) -> StatesInTheWay:
        """The group is to be deleted: everything that may have state at the share coordinator."""
        topics = draft.group.topics
        everything = _to_delete(topics, topics.initializing.keys() | topics.initialized.keys())
        if everything != topics:
            draft.put_topics(everything)
        return StatesInTheWay(tuple(_states(*found) for found in everything.deleting.items()))

    # --- on request -------------------------------------------------------------------------------------------------

    def _list(self, command: ListStates, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is None:
            outcome.reply = _no_group(command.group_id)
        else:
            outcome.reply = tuple(_states(*found) for found in group.topics.initialized.items())

    def _prepare_seek(self, command: PrepareSeek, outcome: Outcome, now_ms: int) -> None:
        """A new state epoch: leaders that still know the former start offset are fenced."""
        group = self._groups.get(command.group_id)
        if group is None:
            outcome.reply = _no_group(command.group_id)
        elif group.members:
            outcome.reply = ErrorCode.non_empty_group
        else:
            draft = ShareDraft(group)
            draft.put_epoch(group.epoch + 1, group.metadata_hash)
            draft.carry_into(outcome)
            outcome.reply = draft.group.epoch

    def _put(self, command: StatesPut, outcome: Outcome, now_ms: int) -> None:
        outcome.reply = ErrorCode.none
        group, image = self._groups.get(command.group_id), self._topics.image()
        if group is None:
            return
        initialized, initializing = dict(group.topics.initialized), dict(group.topics.initializing)
        for name, index in command.places:
            if name in image.topics:
                topic_id = image.topics[name].id
                initialized[topic_id] = TopicStates(name, _partitions(initialized, topic_id) | {index})
                rest = _partitions(initializing, topic_id) - {index}
                initializing.pop(topic_id, None)
                if rest:
                    initializing[topic_id] = TopicStates(name, rest)
        if initialized != group.topics.initialized:
            draft = ShareDraft(group)
            deleting = _without(group.topics.deleting, *initialized)  # it was deleted, and is there again
            draft.put_topics(SharedTopics(initializing, initialized, deleting))
            self._plan_anew(draft, outcome)
            draft.carry_into(outcome)

    def _prepare_forget(self, command: PrepareForget, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is None:
            outcome.reply = _no_group(command.group_id)
        elif group.members:
            outcome.reply = ErrorCode.non_empty_group
        else:
            ids = _ids(command.topics, group.topics, self._topics.image())
            deleting = _to_delete(group.topics, ids)
            if deleting != group.topics:
                draft = ShareDraft(group)
                draft.put_topics(deleting)
                self._plan_anew(draft, outcome)
                draft.carry_into(outcome)
            outcome.reply = tuple(_states(topic_id, deleting.deleting[topic_id]) for topic_id in ids)


def _ids(names: Iterable[str], topics: SharedTopics, image: ClusterImage) -> list[uuid.UUID]:
    """The ids of these topics, as far as the group has states of them."""
    ids = [image.topics[name].id for name in dict.fromkeys(names) if name in image.topics]
    return [
        topic_id
        for topic_id in ids
        if topic_id in topics.initialized or topic_id in topics.initializing or topic_id in topics.deleting
    ]


def _to_delete(topics: SharedTopics, ids: Iterable[uuid.UUID]) -> SharedTopics:
    deleting = dict(topics.deleting)
    for topic_id in ids:
        parts = [found[topic_id] for found in (deleting, topics.initialized, topics.initializing) if topic_id in found]
        deleting[topic_id] = TopicStates(parts[0].name, frozenset().union(*(part.partitions for part in parts)))
    return SharedTopics(_without(topics.initializing, *ids), _without(topics.initialized, *ids), deleting)


def _without(topics: _Topics, *ids: uuid.UUID) -> dict[uuid.UUID, TopicStates]:
    return {topic_id: topic for topic_id, topic in topics.items() if topic_id not in ids}


def _partitions(topics: _Topics, topic_id: uuid.UUID) -> frozenset[int]:
    return topics[topic_id].partitions if topic_id in topics else frozenset()


def _states(topic_id: uuid.UUID, topic: TopicStates) -> StatesOf:
    return StatesOf(topic_id, topic.name, tuple(sorted(topic.partitions)))


def _no_group(group_id: str) -> ErrorCode:
    return ErrorCode.group_id_not_found if group_id else ErrorCode.invalid_group_id
