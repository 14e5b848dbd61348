"""ListPartitionReassignments, v0: partitions that are being reassigned, of all topics (null) or of some.

Partitions that are not being reassigned, or do not exist, are omitted from the response, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace
from headrace.cluster.view import ClusterView
from headrace.model.image import NO_LEADER, ClusterImage, PartitionImage
from headrace.wire.messages import Message

_NONE = PartitionImage(-1, (), (), NO_LEADER, 0, 0, ())  # not being reassigned


class ListPartitionReassignments:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def __call__(self, request: Request) -> Steps[Message]:
        moving, pace = dict[str, list[Message]](), Pace()
        for topic, partition in _asked(self._view.image, request.body):
            if pace.is_over():
                yield
            if partition.adding or partition.removing:
                moving.setdefault(topic, []).append(
                    Message(
                        partition_index=partition.index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
        return Message(topics=[Message(name=name, partitions=partitions) for name, partitions in moving.items()])


def _asked(image: ClusterImage, body: Message) -> Iterator[tuple[str, PartitionImage]]:
    if body.topics is None:
        for topic in image.topics.values():
            for partition in topic.partitions:
                yield topic.name, partition
    else:
        for asked in body.topics:
            for index in asked.partition_indexes:
                found = image.partition(asked.name, index) or _NONE
                yield asked.name, found
