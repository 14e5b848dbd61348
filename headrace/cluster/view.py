"""A broker's view of its cluster: the current image, and the subscribers that are called when it changes.

There are several sources of new states: the controller and the leaders publish their own writes, and
`cluster/following.py` publishes what it read. These may arrive in any order. So each source derives its image from the
current one, without awaiting in between, and passes it to `merge`, which keeps the newer version of everything that has
a version. The view never goes back to an older state.

Subscribers are called synchronously, in the order in which they subscribed, once per change and in the order of the
changes. When `publish` or `merge` returns, all of them have seen the new image. Unchanged parts are the same object in
both images, so that subscribers find changes quickly.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import uuid
from collections.abc import Callable

from msgspec.structs import replace

from headrace.cluster import znodes
from headrace.cluster.store import Store
from headrace.model.image import NO_CONTROLLER, BrokerImage, ClusterImage, PartitionImage, TopicImage

logger = logging.getLogger(__name__)

Subscriber = Callable[[ClusterImage, ClusterImage], None]


class ClusterView:
    def __init__(self) -> None:
        self._image = ClusterImage(cluster_id="", controller_id=NO_CONTROLLER)
        self._subscribers: list[Subscriber] = []
        self._told: dict[uuid.UUID, list[PartitionImage]] = {}

    @property
    def image(self) -> ClusterImage:
        return self._image

    def subscribe(self, subscriber: Subscriber) -> None:
        """`subscriber(old, new)` from the next change on."""
        self._subscribers.append(subscriber)

    def merge(self, image: ClusterImage) -> None:
        """Publish an image derived from the current one; newer states of the current one stay."""
        self.publish(with_newer(self._image, image))

    def merge_soon(self, topic_id: uuid.UUID, partition: PartitionImage) -> None:
        """Merge a partition's new state together with all others of this loop iteration: a leader of thousands of
        partitions calls this for each, and every new image makes every subscriber check its topic."""
        if not self._told:
            asyncio.get_running_loop().call_soon(self._merge_told)
        self._told.setdefault(topic_id, []).append(partition)

    def _merge_told(self) -> None:
        told, self._told = self._told, {}
        self.merge(self._image.with_partitions(told))

    def publish(self, image: ClusterImage) -> None:
        old, self._image = self._image, image
        for subscriber in self._subscribers:
            try:
                subscriber(old, image)
            except Exception:  # an error of one subscriber must neither hide the change from others nor undo it
                logger.exception("a listener failed on a change of the cluster's metadata")


def with_newer(current: ClusterImage, image: ClusterImage) -> ClusterImage:
    """`image`, with the states that are newer in `current`. What `image` does not contain is deleted."""
    topics = [
        _newer_topic(known, topic)
        for name, topic in image.topics.items()
        if (known := current.topics.get(name)) is not None and known is not topic and known.id == topic.id
    ]
    brokers = {
        number: max(broker, current.brokers.get(number, broker), key=lambda start: start.epoch)
        for number, broker in image.brokers.items()
    }
    stale = [name for name, version in image.broker_settings_versions.items() if _version(current, name) > version]
    for name in stale:
        image = image.with_broker_settings(name, current.broker_settings[name], _version(current, name))
    if current.group_settings_version > image.group_settings_version:
        version = current.group_settings_version
        image = replace(image, group_settings=current.group_settings, group_settings_version=version)
    return replace(image.with_topics(topics), brokers=brokers)


def _newer_topic(known: TopicImage, topic: TopicImage) -> TopicImage:
    """The same object as `known` if nothing in `topic` is newer, so that subscribers can skip it."""
    newer = topic if topic.version > known.version else known
    both = zip(known.partitions, topic.partitions, strict=False)
    partitions = tuple(ours if ours is theirs or _age(ours) >= _age(theirs) else theirs for ours, theirs in both)
    partitions += max(known.partitions, topic.partitions, key=len)[len(partitions) :]
    if newer is known and all(map(operator.is_, partitions, known.partitions)):
        return known
    return replace(newer, partitions=partitions)


def _age(partition: PartitionImage) -> tuple[int, int]:
    return partition.leader_epoch, partition.version


def _version(image: ClusterImage, settings_of: str) -> int:
    return image.broker_settings_versions.get(settings_of, -1)


async def read_image(store: Store) -> ClusterImage:
    """The whole cluster, as it is stored."""
    await store.sync()
    cluster_id = znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID))[0])
    controller_id = NO_CONTROLLER
    if await store.exists(znodes.CONTROLLER) is not None:
        controller_id = znodes.decode_controller((await store.get(znodes.CONTROLLER))[0])
    brokers: dict[int, BrokerImage] = {}
    for broker_id in map(int, await store.children(znodes.BROKERS)):
        brokers[broker_id] = znodes.broker_image(broker_id, (await store.get(znodes.broker_path(broker_id)))[0])
    data, stat = await store.get(znodes.GROUP_SETTINGS)
    groups = znodes.decode_group_settings(data)
    image = ClusterImage(cluster_id, controller_id, brokers, group_settings=groups, group_settings_version=stat.version)
    for name in await store.children(znodes.BROKER_SETTINGS):
        broker = znodes.broker_of_settings(name)
        path = znodes.broker_settings_path(broker)
        data, stat = await store.get(path)
        image = image.with_broker_settings(broker, znodes.decode_settings(path, data), stat.version)
    return image.with_topics([await _read_topic(store, name) for name in await store.children(znodes.TOPICS)])


async def _read_topic(store: Store, name: str) -> TopicImage:
    data, topic_stat = await store.get(znodes.topic_path(name))
    topic = znodes.decode_topic(name, data)
    partitions: list[PartitionImage] = []
    for index in range(topic.partitions):
        path = znodes.partition_path(topic.id, index)
        data, stat = await store.get(path)
        partitions.append(znodes.image_of(index, znodes.decode_partition(path, data), stat.version))
    return TopicImage(name, topic.id, tuple(partitions), topic.settings, topic_stat.version, topic.base)
