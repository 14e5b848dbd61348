"""One change of the cluster's metadata: the writes, and the resulting image. Pure.

The controller plans a change on the newest image it knows, which includes changes that are still being written. This is
safe because every write names the version it was planned on: if an earlier change fails, the changes that built on it
fail in the store too, and the others are not affected.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from headrace.cluster import znodes
from headrace.cluster.store import MAX_BYTES, Create, Operation, Set, size_of
from headrace.model.image import ClusterImage, PartitionImage

T = TypeVar("T")
State = tuple[str, PartitionImage]  # of a partition of this topic

_FENCE_BYTES = 1024  # reserved in every multi for the controller's epoch check
_GROUP = 400  # partition states in one multi; each takes some 300 bytes


class Change(Struct, Generic[T], frozen=True):
    steps: Sequence[Sequence[Operation]]  # one multi each, in order; only the last is visible to readers
    delta: Callable[[ClusterImage], ClusterImage]
    result: T
    leaves_rubbish: bool = False  # obsolete nodes remain and must be removed afterwards


Plan = Callable[[ClusterImage, int], Change[T]]  # from the newest image and the controller's epoch; or KafkaError


def in_multis(operations: Iterable[Operation]) -> list[list[Operation]]:
    """Cut into as many multis as their size asks for; order is kept."""
    multis: list[list[Operation]] = [[]]
    room = MAX_BYTES - _FENCE_BYTES
    for operation in operations:
        size = size_of(operation)
        if size > room and multis[-1]:
            multis.append([])
            room = MAX_BYTES - _FENCE_BYTES
        multis[-1].append(operation)
        room -= size
    return multis


def in_groups(states: Iterable[State]) -> Iterator[list[State]]:
    """Next states of partitions, as many at a time as fit into one multi with room to spare."""
    rest = iter(states)
    while group := list(islice(rest, _GROUP)):
        yield group


def change_partition(
    image: ClusterImage, topic: str, state: PartitionImage, controller_epoch: int
) -> Change[PartitionImage]:
    """The next state of one partition, with the version of the state it follows."""
    change = change_partitions(image, [(topic, state)], controller_epoch)
    return Change(change.steps, change.delta, replace(state, version=state.version + 1))


def change_partitions(image: ClusterImage, states: Iterable[State], controller_epoch: int) -> Change[None]:
    """The same for many, by topic, in one multi."""
    by_topic: dict[uuid.UUID, list[PartitionImage]] = {}
    for topic, state in states:
        by_topic.setdefault(image.topics[topic].id, []).append(replace(state, version=state.version + 1))
    step = [set_partition(topic_id, state, controller_epoch) for topic_id in by_topic for state in by_topic[topic_id]]

    return Change([step], lambda image: image.with_partitions(by_topic), None)


def create_partition(topic_id: uuid.UUID, partition: PartitionImage, controller_epoch: int) -> Operation:
    data = znodes.encode_partition(znodes.state_of(partition, controller_epoch))
    return Create(znodes.partition_path(topic_id, partition.index), data)


def set_partition(topic_id: uuid.UUID, partition: PartitionImage, controller_epoch: int) -> Operation:
    """`partition.version` is the version that the write is to produce."""
    data = znodes.encode_partition(znodes.state_of(partition, controller_epoch))
    return Set(znodes.partition_path(topic_id, partition.index), data, partition.version - 1)
