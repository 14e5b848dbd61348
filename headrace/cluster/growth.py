"""Internal topics grow with the cluster: if they were created on one broker, they get replicas on the brokers that
join.

Pure; `cluster/tending.py` calls this when brokers have joined. New replicas are added as in any reassignment, so they
are filled before they count. Once a topic has them, its `min.insync.replicas` is also raised to two.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.cluster import placement, reassignment
from headrace.cluster.change import State
from headrace.cluster.topic_changes import TopicDefaults, with_min_isr
from headrace.model.image import INTERNAL_TOPICS, ClusterImage, TopicImage


def thin(image: ClusterImage, defaults: TopicDefaults) -> Iterator[State]:
    """Partitions of internal topics that have fewer replicas than there could be, on their way to more."""
    racks = {broker.id: broker.rack for broker in image.brokers.values()}
    wanted = min(defaults.factor(len(racks)), len(racks))
    for topic in _internal(image):
        load = placement.load_of([topic])
        for partition in topic.partitions:
            alive = set(partition.replicas) <= racks.keys()
            if len(partition.replicas) < wanted and alive and not reassignment.moves(partition):
                target = placement.grown(partition.replicas, wanted, racks, load)
                load = placement.with_more(load, target[len(partition.replicas) :])
                yield topic.name, reassignment.begun(partition, target, image.brokers, factor_may_change=True)


def careless(image: ClusterImage, defaults: TopicDefaults) -> Iterator[str]:
    """Internal topics that have their replicas by now, and should ask for two in sync."""
    for topic in _internal(image):
        factor = min(len(partition.replicas) for partition in topic.partitions)
        arrived = not any(map(reassignment.moves, topic.partitions))
        if arrived and with_min_isr(topic.settings, factor, image, defaults) != topic.settings:
            yield topic.name


def _internal(image: ClusterImage) -> Iterator[TopicImage]:
    for name in sorted(INTERNAL_TOPICS & image.topics.keys()):
        yield image.topics[name]
