"""One change of the cluster's metadata: what is written, and what the image becomes. Pure.

The controller plans a change against the newest image it knows of, including changes that are still being written.
That is safe because every write names the version it was planned on: if an earlier change fails after all, the later
ones that built on it fail in the store, and those that did not are as good as before.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.cluster import znodes
from headrace.cluster.store import MAX_BYTES, Create, Operation, Set, size_of
from headrace.model.image import ClusterImage, PartitionImage

T = TypeVar("T")

_FENCE_BYTES = 1024  # room that the controller needs in every multi for its own check


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    steps: Sequence[Sequence[Operation]]  # one multi each, in order; only the last is visible to readers
    delta: Callable[[ClusterImage], ClusterImage]
    result: T
    leaves_rubbish: bool = False  # nodes that nobody reads any more are to be swept afterwards


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


def create_partition(topic_id: uuid.UUID, partition: PartitionImage, controller_epoch: int) -> Operation:
    data = znodes.encode_partition(znodes.state_of(partition, controller_epoch))
    return Create(znodes.partition_path(topic_id, partition.index), data)


def set_partition(topic_id: uuid.UUID, partition: PartitionImage, controller_epoch: int) -> Operation:
    """`partition.version` is the version that the write is to produce."""
    data = znodes.encode_partition(znodes.state_of(partition, controller_epoch))
    return Set(znodes.partition_path(topic_id, partition.index), data, partition.version - 1)
