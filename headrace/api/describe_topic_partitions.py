"""DescribeTopicPartitions, v0 (KIP-966): topics by name, in pages.

An empty list means all topics. Topics are sorted by name, with at most MAX_PARTITIONS partitions in a response; the
response's cursor says where the next page starts. A cursor for a topic that is not among the requested ones is
INVALID_REQUEST. A requested topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION. Eligible leader replicas have left
the ISR and may still be elected; the last known ones were the last in the ISR, and may all lack committed records.
"""

from __future__ import annotations

from headrace.api.authorized_operations import ALL_OF_A_TOPIC
from headrace.api.contract import Request, Steps
from headrace.api.metadata import partition_message
from headrace.api.pieces import Pace
from headrace.cluster.view import ClusterView
from headrace.model.image import ClusterImage, PartitionImage
from headrace.model.names import topic_name_problem
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

MAX_PARTITIONS = 2000


class DescribeTopicPartitions:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def __call__(self, request: Request) -> Steps[Message]:
        image, body = self._view.image, request.body
        names = sorted({topic.name for topic in body.topics} or image.topics)
        first_partition = 0
        if body.cursor is not None:
            beside = bool(body.topics) and body.cursor.topic_name not in names
            if beside or body.cursor.partition_index < 0:
                return (yield from _refused(names))
            names = [name for name in names if name >= body.cursor.topic_name]
            if names and names[0] == body.cursor.topic_name:
                first_partition = body.cursor.partition_index
        return (
            yield from _page(image, names, first_partition, max(1, min(body.response_partition_limit, MAX_PARTITIONS)))
        )


def _refused(names: list[str]) -> Steps[Message]:
    topics, pace = list[Message](), Pace()
    for name in names:
        topics.append(Message(error_code=ErrorCode.invalid_request, name=name))
        if pace.is_over():
            yield
    return Message(topics=topics)


def _page(image: ClusterImage, names: list[str], first_partition: int, room: int) -> Steps[Message]:
    topics, pace = list[Message](), Pace()
    for name in names:
        if pace.is_over():
            yield
        found = image.topics.get(name)
        if found is None:
            topics.append(Message(error_code=_why_not(name), name=name))
            continue
        if room == 0:
            return Message(topics=topics, next_cursor=Message(topic_name=name, partition_index=first_partition))
        every = image.partitions_of(found)
        wanted = every[first_partition : first_partition + room]
        partitions = [_partition(partition, image) for partition in wanted]
        topics.append(
            Message(
                name=name,
                topic_id=found.id,
                is_internal=found.internal,
                partitions=partitions,
                topic_authorized_operations=ALL_OF_A_TOPIC,
            )
        )
        next_partition = first_partition + len(wanted)
        if next_partition < len(every):
            return Message(topics=topics, next_cursor=Message(topic_name=name, partition_index=next_partition))
        room -= len(wanted)
        first_partition = 0
    return Message(topics=topics)


def _partition(partition: PartitionImage, image: ClusterImage) -> Message:
    message = partition_message(partition, image)
    message.eligible_leader_replicas = [broker for broker, _ in partition.elr]
    message.last_known_elr = list(partition.last_known)
    return message


def _why_not(name: str) -> ErrorCode:
    wrong = topic_name_problem(name)
    return ErrorCode.unknown_topic_or_partition if wrong is None else ErrorCode.invalid_topic_exception
