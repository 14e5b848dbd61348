"""What this broker knows of its cluster: the current image, and who is told when it changes.

The controller publishes here what it has made durable. Subscribers are called in the order in which they came,
synchronously, once per change and in the order of changes; when `publish` returns, everybody has seen the new image.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.cluster import znodes
from headrace.cluster.store import Store
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage

logger = logging.getLogger(__name__)

Subscriber = Callable[[ClusterImage, ClusterImage], None]


class ClusterView:
    def __init__(self) -> None:
        self._image = ClusterImage(cluster_id="", controller_id=-1)
        self._subscribers: list[Subscriber] = []

    @property
    def image(self) -> ClusterImage:
        return self._image

    def subscribe(self, subscriber: Subscriber) -> None:
        """`subscriber(old, new)` from the next change on."""
        self._subscribers.append(subscriber)

    def publish(self, image: ClusterImage) -> None:
        old, self._image = self._image, image
        for subscriber in self._subscribers:
            try:
                subscriber(old, image)
            except Exception:  # one listener's fault must neither hide the change from others nor undo it
                logger.exception("a listener failed on a change of the cluster's metadata")


async def read_image(store: Store) -> ClusterImage:
    """The whole cluster, as it is stored."""
    await store.sync()
    cluster_id = znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID))[0])
    controller_id = -1
    if await store.exists(znodes.CONTROLLER) is not None:
        controller_id = znodes.decode_controller((await store.get(znodes.CONTROLLER))[0])
    brokers: dict[int, BrokerImage] = {}
    for broker_id in map(int, await store.children(znodes.BROKERS)):
        found = znodes.decode_registration(broker_id, (await store.get(znodes.broker_path(broker_id)))[0])
        brokers[broker_id] = BrokerImage(
            broker_id, found.host, found.port, found.rack, found.epoch, found.unbroken_since
        )
    image = ClusterImage(cluster_id, controller_id, brokers)
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
    return TopicImage(name, topic.id, tuple(partitions), topic.settings, topic_stat.version)
