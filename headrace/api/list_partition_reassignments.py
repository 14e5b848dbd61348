"""ListPartitionReassignments, v0: partitions that are being reassigned, of all topics (null) or of some.

Partitions that are not being reassigned, or do not exist, are omitted from the response, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.api.contract import Request
from headrace.cluster.view import ClusterView
from headrace.model.image import ClusterImage, PartitionImage
from headrace.wire.messages import Message


class ListPartitionReassignments:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def __call__(self, request: Request) -> Message:
        moving: dict[str, list[Message]] = {}
        for topic, partition in _asked(self._view.image, request.body):
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
                found = image.partition(asked.name, index)
                if found is not None:
                    yield asked.name, found
