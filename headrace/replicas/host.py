"""All partitions that this broker hosts, kept in step with the cluster's image.

Handlers find a partition here, by name or by topic id; the broker calls `follow` with each new image, and `run` looks
after what depends on time: replicas that fall behind, and high watermarks to be saved. What the host needs from
elsewhere: the logs of the data folder, the settings in force for a topic, and in a cluster the plugs of
`BrokerContext`.

What holds: a partition that cannot be hosted keeps no other one from it. Its failure is logged once, its clients get
KAFKA_STORAGE_ERROR, and it is tried again with the next image and every few seconds. An image that changes thousands
of partitions is followed in pieces (backlog.py), since opening a log takes a tenth of a millisecond; clients of a
partition that has not had its turn get NOT_LEADER_OR_FOLLOWER, and try again.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from headrace.log.logs import CLEANER_BACKOFF_MS, Logs
from headrace.model.failure import Failure
from headrace.model.image import NO_CONTROLLER, ClusterImage, PartitionImage, TopicImage
from headrace.model.settings import LONG_MAX
from headrace.model.settings_in_force import BrokerFile
from headrace.model.topic_config import TopicConfig, topic_config
from headrace.model.topic_partition import TopicPartition
from headrace.replicas.backlog import Backlog
from headrace.replicas.broker_context import BrokerContext, LeadershipChanged
from headrace.replicas.follower import ReplicaPulls
from headrace.replicas.leadership import IsrStore
from headrace.replicas.partition import Partition
from headrace.replicas.releasing import Releasing
from headrace.replicas.reparking import Reparking
from headrace.replicas.watermarks import Watermarks
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock
from headrace.world.net import Net

T = TypeVar("T")


logger = logging.getLogger(__name__)

_REVIEW_S = 1.0
_REVIEWED_AT_ONCE = 100
_SAVE_S = 5.0
_RETRY_S = 5.0


class ReplicaHost:
    def __init__(
        self,
        broker_id: int,
        logs: Logs,
        clock: Clock,
        broker_settings: Mapping[str, str],
        *,
        lag_s: float = 30.0,
        watermarks: Watermarks | None = None,
        compute: Callable[..., Awaitable[Any]] | None = None,
    ) -> None:
        """`compute` runs what only computes, off the event loop; by default where the logs wait for the disk."""
        self._broker_id = broker_id
        self._logs = logs
        self._clock = clock
        self._file = BrokerFile(broker_id, broker_settings)
        self._watermarks = watermarks
        self._broker = BrokerContext(
            broker_id,
            clock,
            logs.request_sync,
            logs.off_loop,
            compute=compute,
            lag_s=lag_s,
            on_role=self._tell,
        )
        self._releasing = self._broker.releasing = Releasing(clock, logs.off_loop)
        self._pulls: ReplicaPulls | None = None
        self._topics: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._failed: dict[TopicPartition, str] = {}  # what could not be hosted, and why
        self._backlog = Backlog(self._let_go, self._look_at)
        self._config: tuple[TopicImage, ClusterImage, TopicConfig] | None = None  # of the topic looked at last
        self._image = ClusterImage("", NO_CONTROLLER)
        self._listeners: list[LeadershipChanged] = []

    # --- plugs ------------------------------------------------------------------------------------------------------

    def join_cluster(
        self,
        net: Net,
        isr_writes: IsrStore,
        lease: Callable[[], bool],
        *,
        wait_ms: int = 500,
        partition_bytes: int = 4 << 20,
    ) -> None:
        """Called once on a broker of a cluster, before the first `follow`. `lease` says whether this broker may still
        believe that it leads what it led; `wait_ms` and `partition_bytes` are those of its fetches from leaders."""
        broker = self._broker
        broker.isr_writes, broker.lease = isr_writes, lease
        broker.pulls = self._pulls = ReplicaPulls(broker, net, wait_ms=wait_ms, partition_bytes=partition_bytes)

    def registered(self, broker_epoch: int) -> None:
        """This broker has registered under a new epoch: what it led before, it leads only if it is elected again."""
        self._broker.broker_epoch = broker_epoch
        for partition in self.partitions():
            with self._isolated(TopicPartition(partition.topic, partition.index)):
                partition.forget_role()

    def resign_all(self) -> None:
        """This broker has lost touch with its cluster: other brokers may have been elected by now."""
        gone = KafkaError(ErrorCode.not_leader_or_follower, "this broker has lost touch with its cluster")
        for partition in self.partitions():
            if partition.leads:
                partition.resign(gone)

    async def off_loop(self, work: Callable[..., T], *args: object) -> T:
        """Run work on a log that waits for the disk."""
        return await self._logs.off_loop(work, *args)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._backlog.run())
            group.create_task(self._review_for_ever())
            group.create_task(self._releasing.run())
            group.create_task(Reparking(self._clock, self.partitions, self._releasing.notes).run())
            if self._pulls is not None:
                group.create_task(self._pulls.run())

    async def _review_for_ever(self) -> None:
        saved_s = retried_s = self._clock.monotonic()
        while True:
            await self._clock.sleep(min(_REVIEW_S, self._broker.lag_s / 2))
            await self._review()
            if self._failed and self._clock.monotonic() - retried_s >= _RETRY_S:
                retried_s = self._clock.monotonic()
                self._retry()
            if self._watermarks is not None and self._clock.monotonic() - saved_s >= _SAVE_S:
                saved_s = self._clock.monotonic()
                await self._logs.off_loop(self._watermarks.save, self._known_watermarks())

    async def _review(self) -> None:
        """All partitions led here. It yields in between, since there may be thousands."""
        for at, partition in enumerate(list(self.partitions()), 1):
            if partition.leadership is not None:
                partition.review()
            if at % _REVIEWED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def save_watermarks(self) -> None:
        """Called at a clean stop; blocks."""
        if self._watermarks is not None:
            self._watermarks.save(self._known_watermarks())

    def _known_watermarks(self) -> dict[tuple[uuid.UUID, int], int]:
        return {(p.topic_id, p.index): p.high_watermark for p in self.partitions() if not p.alone}

    # --- finding ----------------------------------------------------------------------------------------------------

    def find(self, topic: str, index: int) -> Partition:
        try:
            return self._topics[topic][index]
        except KeyError:
            raise self._absent(topic, index) from None

    def find_by_id(self, topic_id: uuid.UUID | None, index: int) -> Partition:
        if topic_id is None:
            raise KafkaError(ErrorCode.unknown_topic_id)
        return self.find_by_wire_id(topic_id.bytes, index)

    def find_by_wire_id(self, topic_id: bytes, index: int) -> Partition:
        """By the sixteen bytes of a request: converting them to a UUID takes longer than finding the partition."""
        partitions = self._by_id.get(topic_id)
        if partitions is None:
            raise KafkaError(ErrorCode.unknown_topic_id)
        try:
            return partitions[index]
        except KeyError:
            topic = self._image.topics_by_id.get(uuid.UUID(bytes=topic_id))
            raise self._absent(topic.name if topic is not None else "", index) from None

    def view(self, topic: str | uuid.UUID) -> TopicImage | None:
        """The view of this name or id; None of anything else."""
        image = self._image
        found = image.topics_by_id.get(topic) if isinstance(topic, uuid.UUID) else image.topics.get(topic)
        return found if found is not None and found.is_view else None

    def find_readable(self, topic: str, index: int) -> Partition:
        """The partition whose records a consumer of this topic reads: of a view, its base's."""
        view = self.view(topic)
        return self.find(topic, index) if view is None else self.find_base(view, index)

    def find_base(self, view: TopicImage, index: int) -> Partition:
        base = self._image.base_of(view)
        if base is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return self.find(base.name, index)

    def refuse_view(self, topic: str, why: str) -> None:
        if self.view(topic) is not None:
            raise KafkaError(ErrorCode.invalid_request, f"topic {topic!r} is a view: {why}")

    def _absent(self, topic: str, index: int) -> KafkaError:
        """A partition that exists on other brokers is NOT_LEADER_OR_FOLLOWER, so that clients look for its leader."""
        failure = self._failed.get(TopicPartition(topic, index))
        if failure is not None:
            return KafkaError(ErrorCode.kafka_storage_error, f"{topic}-{index} could not be opened: {failure}")
        if self.view(topic) is not None:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"topic {topic!r} is a view: write to its base")
        wanted = self._image.partition(topic, index)
        if wanted is None:
            return KafkaError(ErrorCode.unknown_topic_or_partition)
        if self._broker_id in wanted.replicas:
            return KafkaError(ErrorCode.not_leader_or_follower, f"{topic}-{index} is being opened; try again")
        return KafkaError(ErrorCode.not_leader_or_follower, f"{topic}-{index} is on other brokers")

    def nearest(self, partition: Partition, rack: str, offset: int) -> int | None:
        """The replica that a consumer in `rack` should read from; None if that is this one. Only a replica in the ISR
        that has the offset qualifies."""
        brokers, leadership = self._broker.brokers, partition.leadership
        if leadership is None or leadership.state.isr == (self._broker_id,):
            return None
        own = brokers.get(self._broker_id)
        if own is None or own.rack == rack:
            return None
        for broker_id in leadership.state.isr:
            broker, follower = brokers.get(broker_id), leadership.followers.get(broker_id)
            if broker is not None and broker.rack == rack and follower is not None and follower.end_offset >= offset:
                return broker_id
        return None

    def partitions(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    # --- following the cluster --------------------------------------------------------------------------------------

    def on_leadership(self, listener: LeadershipChanged) -> None:
        """`listener` is called for every partition that this broker starts or stops leading."""
        self._listeners.append(listener)

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Make the hosted partitions those of `new`: a few at once, as is enough for most changes, the others by and by
        in `run`. Topics that did not change cost nothing."""
        failed_before = {place.topic for place in self._failed}
        settings_changed = old.broker_settings != new.broker_settings
        self._image = new
        self._broker.brokers = new.brokers
        if settings_changed or not old.cluster_id:
            self._set_pace(self._file.in_force(new))
        for name, before in old.topics.items():
            after = new.topics.get(name)
            if after is None or after.id != before.id:
                self._drop(before)
        for name, after in new.topics.items():
            known = old.topics.get(name)
            if settings_changed or known is not after:
                self._host(after, _changed(None if settings_changed else known, after))
            elif name in failed_before:
                self._host(after, ())
        self._backlog.begin()

    async def followed(self) -> None:
        """Returns when all partitions of the newest image are hosted, or have failed to be."""
        await self._backlog.empty()

    def _retry(self) -> None:
        for name in {place.topic for place in self._failed}:
            topic = self._image.topics.get(name)
            if topic is not None:
                self._host(topic, ())
        self._backlog.begin()

    def _set_pace(self, settings: Mapping[str, str]) -> None:
        self._logs.cleaner_backoff_ms = int(settings.get("log.cleaner.backoff.ms", CLEANER_BACKOFF_MS))
        for role, throttle in (("leader", self._broker.leader_throttle), ("follower", self._broker.follower_throttle)):
            throttle.limit(int(settings.get(f"{role}.replication.throttled.rate", LONG_MAX)))

    def _drop(self, topic: TopicImage) -> None:
        """Nobody finds its partitions any more; they let go of their logs in their turn."""
        self._by_id.pop(topic.id.bytes, None)
        for place in [place for place in self._failed if place.topic == topic.name]:
            del self._failed[place]
        gone = KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {topic.name} was deleted")
        self._backlog.drop(topic.id, self._topics.pop(topic.name, {}).values(), gone)

    def _let_go(self, partition: Partition, why: KafkaError) -> None:
        try:
            if self._broker.pulls is not None:
                self._broker.pulls.stop(partition)
            partition.resign(why)
            self._logs.delete(partition.topic, partition.index)
        except Exception as error:  # what else is to be dropped or hosted must not suffer
            place = TopicPartition(partition.topic, partition.index)
            logger.error("cannot remove %s: %s", place, error, exc_info=not isinstance(error, OSError))

    def _host(self, topic: TopicImage, changed: Iterable[int]) -> None:
        """Have these partitions looked at, and those that failed before."""
        self._by_id[topic.id.bytes] = self._topics.setdefault(topic.name, {})
        failed = [place.partition for place in self._failed if place.topic == topic.name]
        self._backlog.look_at(topic.id, changed)
        self._backlog.look_at(topic.id, failed)

    def _look_at(self, topic_id: uuid.UUID, index: int) -> None:
        """Make one partition what it is in the newest image."""
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None or index >= len(topic.partitions):
            return
        wanted, hosted = topic.partitions[index], self._topics[topic.name]
        place = TopicPartition(topic.name, index)
        with self._isolated(place):
            if self._broker_id not in wanted.replicas:
                self._failed.pop(place, None)
                self._leave(topic, wanted, hosted)
                return
            self._host_one(topic, wanted, self._config_of(topic), hosted)
            if self._failed.pop(place, None) is not None:
                logger.info("%s is hosted now", place)

    def _config_of(self, topic: TopicImage) -> TopicConfig:
        known = self._config
        if known is None or known[0] is not topic or known[1] is not self._image:
            config = topic_config(topic.settings, self._file.in_force(self._image))
            self._config = known = topic, self._image, config
        return known[2]

    @contextmanager
    def _isolated(self, place: TopicPartition) -> Iterator[None]:
        """What fails in here fails for this partition alone, and is remembered until the partition could be hosted."""
        try:
            yield
        except Exception as error:  # a fault in one partition's files or code must not reach the others
            reason = str(error) or repr(error)
            if self._failed.get(place) != reason:
                foreseen = isinstance(error, OSError | KafkaError | Failure)
                logger.error("%s cannot be hosted, it will be tried again: %s", place, reason, exc_info=not foreseen)
            self._failed[place] = reason

    def _leave(self, topic: TopicImage, wanted: PartitionImage, hosted: dict[int, Partition]) -> None:
        """The cluster's state has no replica here, unless the partition itself knows a newer one."""
        partition = hosted.get(wanted.index)
        if partition is not None and not partition.knows_better(wanted):
            del hosted[wanted.index]
            self._let_go(partition, self._absent(topic.name, wanted.index))

    def _host_one(
        self, topic: TopicImage, wanted: PartitionImage, config: TopicConfig, hosted: dict[int, Partition]
    ) -> None:
        partition = hosted.get(wanted.index)
        is_new = partition is None
        if partition is None:
            partition = hosted[wanted.index] = self._open(topic, wanted, config)
        if partition.log.config != config:
            partition.reconfigure(config)
        partition.apply(wanted)
        if is_new and partition.log.missing:
            partition.found_damage(partition.log.missing[0].first_offset)

    def _open(self, topic: TopicImage, wanted: PartitionImage, config: TopicConfig) -> Partition:
        log = self._logs.get(topic.name, wanted.index)
        if log is None:
            log = self._logs.create(topic.name, wanted.index, topic.id, config)
        known = log.end_offset
        if len(wanted.replicas) > 1:
            known = self._watermarks.known(topic.id, wanted.index) if self._watermarks is not None else 0
        elif config.fsync:
            known = log.synced_offset
        return Partition(topic.name, topic.id, wanted.index, log, self._broker, known)

    def _tell(self, topic: str, partition: int, leads: bool, epoch: int) -> None:
        for listener in self._listeners:
            listener(topic, partition, leads, epoch)


def _changed(known: TopicImage | None, topic: TopicImage) -> Iterable[int]:
    """The partitions whose state or settings are not those that are known."""
    if known is None or known.id != topic.id or known.settings != topic.settings:
        return range(len(topic.partitions))
    before = known.partitions
    return [at for at, state in enumerate(topic.partitions) if at >= len(before) or before[at] is not state]
