"""All partitions that this broker hosts, kept in step with the cluster's image.

Handlers find a partition here, by name or by topic id; the broker calls `follow` with each new image. What the host
needs from elsewhere: the logs of the data folder, and the settings in force for a topic.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping

from headrace.log.logs import Logs
from headrace.model.image import ClusterImage, TopicImage
from headrace.model.topic_config import topic_config
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock

LeadershipChanged = Callable[[str, int, bool, int], None]  # topic, partition, leads, epoch


class ReplicaHost:
    def __init__(self, broker_id: int, logs: Logs, clock: Clock, broker_settings: Mapping[str, str]) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._clock = clock
        self._broker_settings = broker_settings
        self._topics: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[uuid.UUID, dict[int, Partition]] = {}
        self._listeners: list[LeadershipChanged] = []

    # --- finding ----------------------------------------------------------------------------------------------------

    def find(self, topic: str, index: int) -> Partition:
        try:
            return self._topics[topic][index]
        except KeyError:
            raise KafkaError(ErrorCode.unknown_topic_or_partition) from None

    def find_by_id(self, topic_id: uuid.UUID | None, index: int) -> Partition:
        partitions = self._by_id.get(topic_id) if topic_id is not None else None
        if partitions is None:
            raise KafkaError(ErrorCode.unknown_topic_id)
        try:
            return partitions[index]
        except KeyError:
            raise KafkaError(ErrorCode.unknown_topic_or_partition) from None

    def partitions(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    # --- following the cluster --------------------------------------------------------------------------------------

    def on_leadership(self, listener: LeadershipChanged) -> None:
        """`listener` hears of every partition that this broker starts or stops leading."""
        self._listeners.append(listener)

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Make the hosted partitions those of `new`. Topics that did not change cost nothing."""
        settings_changed = old.broker_settings != new.broker_settings
        for name, before in old.topics.items():
            after = new.topics.get(name)
            if after is None or after.id != before.id:
                self._drop(before)
        for name, after in new.topics.items():
            if settings_changed or old.topics.get(name) is not after:
                self._host(after, new)

    def _drop(self, topic: TopicImage) -> None:
        self._by_id.pop(topic.id, None)
        for index, partition in self._topics.pop(topic.name, {}).items():
            led = partition.leads
            partition.resign(KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {topic.name} was deleted"))
            self._logs.delete(topic.name, index)
            if led:
                self._tell(topic.name, index, False, partition.leader_epoch)

    def _host(self, topic: TopicImage, image: ClusterImage) -> None:
        config = topic_config(topic.settings, self._settings_in(image))
        hosted = self._topics.setdefault(topic.name, {})
        self._by_id[topic.id] = hosted
        for wanted in topic.partitions:
            if self._broker_id not in wanted.replicas:
                continue
            partition = hosted.get(wanted.index)
            if partition is None:
                log = self._logs.get(topic.name, wanted.index)
                if log is None:
                    log = self._logs.create(topic.name, wanted.index, topic.id, config)
                partition = Partition(topic.name, topic.id, wanted.index, log, self._clock, self._logs.request_sync)
                hosted[wanted.index] = partition
            if partition.log.config != config:
                partition.reconfigure(config)
            partition.in_sync = len(wanted.isr)
            partition.alone = len(wanted.replicas) == 1
            if wanted.leader == self._broker_id and partition.leader_epoch != wanted.leader_epoch:
                partition.lead(wanted.leader_epoch)
                self._tell(topic.name, wanted.index, True, wanted.leader_epoch)

    def _settings_in(self, image: ClusterImage) -> dict[str, str]:
        dynamic = image.broker_settings
        return {**self._broker_settings, **dynamic.get("", {}), **dynamic.get(str(self._broker_id), {})}

    def _tell(self, topic: str, index: int, leads: bool, epoch: int) -> None:
        for listener in self._listeners:
            listener(topic, index, leads, epoch)
