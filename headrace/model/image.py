"""The cluster as one immutable snapshot: brokers, topics, partitions, settings.

The cluster room builds a new image whenever the stored metadata changes and passes it to all subscribers. A reader
keeps the image it started with, so that one response never mixes two states. A change copies the mapping it touches and
shares the rest, so adding a topic to thousands is cheap.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from headrace.model.broker_token import NO_TOKEN, BrokerToken
from headrace.model.delays import shows_pending
from headrace.model.share_state import STATE_TOPIC

NO_LEADER = -1
NO_CONTROLLER = -1

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, STATE_TOPIC})


class BrokerImage(Struct, frozen=True):
    id: int
    host: str
    port: int
    rack: str | None
    epoch: int  # rises with every start of this broker
    unbroken_since: int = 0  # the epoch since which it lost nothing: every stop after that was clean
    disk_since: int = 0  # the epoch since which it has had the same disk
    token: BrokerToken = NO_TOKEN  # known to brokers only


class PartitionImage(Struct, frozen=True):
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int  # NO_LEADER while there is none
    leader_epoch: int
    version: int  # of the stored state: ISR changes raise it and keep the epoch
    isr_epochs: tuple[int, ...] = ()  # per ISR member, the broker epoch that was in sync
    elr: tuple[tuple[int, int], ...] = ()  # (broker, its epoch): left the ISR, but has all committed records (KIP-966)
    last_known: tuple[int, ...] = ()  # must answer before the longest log is chosen: in sync last, or just left
    adding: tuple[int, ...] = ()  # of the replicas, those that a reassignment adds
    removing: tuple[int, ...] = ()  # and those that it will remove
    recovering: bool = False  # its leader was elected uncleanly and no other replica has joined it yet

    def enough_in_sync(self, min_isr: int) -> int:
        """In-sync replicas required for a commit; never more than the partition should have."""
        return min(min_isr, max(1, len(self.replicas) - len(self.adding)))


class TopicImage(Struct, frozen=True):
    name: str
    id: uuid.UUID
    partitions: tuple[PartitionImage, ...]
    settings: Mapping[str, str]  # only what was set on the topic; see model.topic_config for defaults
    version: int = 0  # of the stored topic: settings and partition count raise it
    base: uuid.UUID | None = None  # of a view: the id of the topic whose records it shows

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def is_view(self) -> bool:
        """A view has no partitions of its own; `ClusterImage.partitions_of` looks through it."""
        return self.base is not None

    @property
    def shows_pending(self) -> bool:
        """A view of the delayed records of its base that are pending, by id; any other view goes by tags."""
        return self.base is not None and shows_pending(self.settings)


class ClusterImage(Struct, frozen=True):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[uuid.UUID, TopicImage] = field(default_factory=dict)
    broker_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by broker id, "" for all brokers
    broker_settings_versions: Mapping[str, int] = field(default_factory=dict)  # of the stored node, by the same names
    group_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by group id, where any are set
    group_settings_version: int = -1  # of the stored node, which has all of them
    version: int = 0  # rises with every change

    @property
    def controller_for_clients(self) -> int:
        """The controller as clients see it. While there is none, this is any live broker: every broker forwards
        requests for the controller, and clients that are told of no controller may wait very long before they ask
        again."""
        return self.controller_id if self.controller_id in self.brokers else min(self.brokers, default=NO_CONTROLLER)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def base_of(self, topic: TopicImage) -> TopicImage | None:
        """The topic that has the records: of a view its base, of any other topic itself."""
        return topic if topic.base is None else self.topics_by_id.get(topic.base)

    def partitions_of(self, topic: TopicImage) -> tuple[PartitionImage, ...]:
        """The partitions as clients see them: those of a view are its base's."""
        base = self.base_of(topic)
        return () if base is None else base.partitions

    def views_of(self, topic: TopicImage) -> list[TopicImage]:
        return [view for view in self.topics.values() if view.base == topic.id]

    def with_topics(self, changed: Iterable[TopicImage]) -> ClusterImage:
        """With these topics added, or replacing those of the same name."""
        topics, by_id = dict(self.topics), dict(self.topics_by_id)
        for topic in changed:
            before = topics.get(topic.name)
            if before is not None:
                del by_id[before.id]
            topics[topic.name] = by_id[topic.id] = topic
        return replace(self, topics=topics, topics_by_id=by_id, version=self.version + 1)

    def with_partitions(self, changed: Mapping[uuid.UUID, Iterable[PartitionImage]]) -> ClusterImage:
        """With these states, by topic, where they are newer. Deleted topics stay deleted."""
        topics: list[TopicImage] = []
        for topic_id, states in changed.items():
            topic = self.topics_by_id.get(topic_id)
            if topic is not None:
                partitions = list(topic.partitions)
                for state in states:
                    if state.index < len(partitions) and state.version > partitions[state.index].version:
                        partitions[state.index] = state
                topics.append(replace(topic, partitions=tuple(partitions)))
        return self.with_topics(topics)

    def without_topic(self, name: str) -> ClusterImage:
        topics, by_id = dict(self.topics), dict(self.topics_by_id)
        del by_id[topics.pop(name).id]
        return replace(self, topics=topics, topics_by_id=by_id, version=self.version + 1)

    def with_broker_settings(self, broker: str, settings: Mapping[str, str], stored_version: int) -> ClusterImage:
        return replace(
            self,
            broker_settings={**self.broker_settings, broker: settings},
            broker_settings_versions={**self.broker_settings_versions, broker: stored_version},
            version=self.version + 1,
        )
