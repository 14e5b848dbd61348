"""The cluster as one immutable snapshot: brokers, topics, partitions, settings.

The cluster room builds a new image whenever the stored metadata changes and hands it to everybody; a reader keeps the
image it started with, so that one answer never mixes two states.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

NO_LEADER = -1

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})


@dataclass(frozen=True, slots=True)
class BrokerImage:
    id: int
    host: str
    port: int
    rack: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionImage:
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int  # NO_LEADER while there is none
    leader_epoch: int
    version: int  # of the stored state: ISR changes raise it and keep the epoch


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: uuid.UUID
    partitions: tuple[PartitionImage, ...]
    settings: Mapping[str, str]  # only what was set on the topic; see model.topic_config for defaults

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class ClusterImage:
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[uuid.UUID, TopicImage] = field(default_factory=dict)
    broker_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by broker id, "" for all brokers
    group_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    version: int = 0  # rises with every change

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]
