"""Metadata, v0 to v13: the brokers, the topics, and the leaders of their partitions.

- All topics: null, or in v0 (which has no null) an empty list. From v1 on an empty list asks for the brokers only.
- By id (since v12): an unknown id is UNKNOWN_TOPIC_ID.
- A topic that does not exist is created if the request (since v4) and `auto.create.topics.enable` both allow it; the
  response waits until it has a leader. Internal topics are never created this way, but by the code that needs them.
- Authorized operations (since v8; of the cluster up to v10) are returned if requested: all of them.
- Which brokers are returned, and with which address, depends on the connection: see `known_brokers`.
- A topic that is named repeatedly is returned once, as in Kafka.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Iterable
from typing import Any, Protocol

from headrace.api.authorized_operations import ALL_OF_A_TOPIC, ALL_OF_THE_CLUSTER, NOT_ASKED_FOR
from headrace.api.contract import Reply, Request, Steps
from headrace.api.known_brokers import KnownBrokers
from headrace.api.pieces import Pace, in_turns
from headrace.cluster.topic_changes import NewTopic
from headrace.cluster.view import ClusterView
from headrace.model.image import INTERNAL_TOPICS, NO_LEADER, ClusterImage, PartitionImage, TopicImage
from headrace.model.names import KRAFT_TOPIC, topic_name_problem
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_NEVER_MADE = INTERNAL_TOPICS | {KRAFT_TOPIC}  # by a Metadata request
# Errors of the topic's creation, mapped to codes that clients retry after Metadata; others would end their request.
_ASK_AGAIN = {
    ErrorCode.not_controller: ErrorCode.leader_not_available,
    ErrorCode.request_timed_out: ErrorCode.leader_not_available,
    ErrorCode.kafka_storage_error: ErrorCode.leader_not_available,
    ErrorCode.unknown_server_error: ErrorCode.leader_not_available,
    ErrorCode.topic_already_exists: ErrorCode.unknown_topic_or_partition,  # created and deleted again during the wait
}

_NULL_NAMES = 12  # from this version on the name is null if only the topic's id is known


class TopicMaker(Protocol):
    def create_topic(self, new: NewTopic) -> asyncio.Future[TopicImage]:
        """Done when the topic exists in the view; KafkaError if it was rejected."""
        ...


class Metadata:
    def __init__(self, view: ClusterView, maker: TopicMaker, brokers: KnownBrokers, auto_create: bool) -> None:
        self._view = view
        self._maker = maker
        self._brokers = brokers
        self._auto_create = auto_create
        self._making: dict[str, asyncio.Future[TopicImage]] = {}  # several clients may request the same missing topic

    def __call__(self, request: Request) -> Reply:
        asked, image = request.body.topics, self._view.image
        if asked is None or (request.version == 0 and not asked):
            return self._response(request, image, ((topic, None) for topic in image.topics.values()))
        unique = {(topic.topic_id or topic.name): topic for topic in asked}
        if self._auto_create and request.body.allow_auto_topic_creation:
            return self._making_first(request, unique)
        return self._answer(request, unique, {})

    def _making_first(self, request: Request, asked: dict[Any, Message]) -> Steps[Message | Awaitable[Steps[Message]]]:
        making, pace = dict[str, asyncio.Future[TopicImage]](), Pace()
        for topic in asked.values():
            if topic.name is not None and topic.topic_id is None and self._is_missing(topic.name):
                making[topic.name] = self._make(topic.name)
            if pace.is_over():
                yield
        if making:
            return self._after_making(request, asked, making)
        return (yield from self._answer(request, asked, {}))

    def _is_missing(self, name: str) -> bool:
        return name not in self._view.image.topics and name not in _NEVER_MADE and topic_name_problem(name) is None

    def _make(self, name: str) -> asyncio.Future[TopicImage]:
        making = self._making.get(name)
        if making is None:
            making = self._making[name] = self._maker.create_topic(NewTopic(name))
            making.add_done_callback(lambda _: self._making.pop(name))
        return making

    async def _after_making(
        self, request: Request, asked: dict[Any, Message], making: dict[str, asyncio.Future[TopicImage]]
    ) -> Steps[Message]:
        refused: dict[str, ErrorCode] = {}
        async for name, made in in_turns(making.items()):
            try:
                await asyncio.shield(made)  # a client that disconnects must not cancel it for others
            except KafkaError as error:
                refused[name] = _ASK_AGAIN.get(error.code, error.code)
        return self._answer(request, asked, refused)

    def _answer(self, request: Request, asked: dict[Any, Message], refused: dict[str, ErrorCode]) -> Steps[Message]:
        image, version = self._view.image, request.version
        return self._response(
            request, image, (_asked_topic(topic, image, refused, version) for topic in asked.values())
        )

    def _response(
        self, request: Request, image: ClusterImage, asked: Iterable[tuple[TopicImage | None, Message | None]]
    ) -> Steps[Message]:
        """Of topics that are there, and of answers about others."""
        topics, pace = list[Message](), Pace()
        for found, other in asked:
            topic = other or Message(partitions=[])
            if found is not None:
                topic.name, topic.topic_id, topic.is_internal = found.name, found.id, found.internal
                for partition in image.partitions_of(found):
                    topic.partitions.append(partition_message(partition, image))
                    if pace.is_over():
                        yield
            if request.body.include_topic_authorized_operations:
                topic.topic_authorized_operations = ALL_OF_A_TOPIC
            topics.append(topic)
            if pace.is_over():
                yield
        return Message(
            brokers=[
                Message(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
                for broker in self._brokers.told_to(request.peer)
            ],
            cluster_id=self._view.image.cluster_id,
            controller_id=self._brokers.controller_id,
            topics=topics,
            cluster_authorized_operations=(
                ALL_OF_THE_CLUSTER if request.body.include_cluster_authorized_operations else NOT_ASKED_FOR
            ),
        )


def _asked_topic(
    asked: Message, image: ClusterImage, refused: dict[str, ErrorCode], version: int
) -> tuple[TopicImage | None, Message | None]:
    """The topic, or what is said instead."""
    name: str | None = asked.name
    topic_id: uuid.UUID | None = asked.topic_id
    if topic_id is not None or name is None:  # an id takes precedence over the name: Java sends "" there
        found = None if topic_id is None else image.topics_by_id.get(topic_id)
        if found is None:
            code = ErrorCode.invalid_request if topic_id is None else ErrorCode.unknown_topic_id
            return None, Message(error_code=code, name=None if version >= _NULL_NAMES else "", topic_id=topic_id)
        return found, None
    found = image.topics.get(name)
    if found is not None:
        return found, None
    if topic_name_problem(name) is not None:
        return None, Message(error_code=ErrorCode.invalid_topic_exception, name=name)
    code = refused.get(name, ErrorCode.unknown_topic_or_partition)
    return None, Message(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def partition_message(partition: PartitionImage, image: ClusterImage) -> Message:
    """One partition, for Metadata and DescribeTopicPartitions. A leader that is not among the live brokers is returned
    as none, since clients would not find it in the list of brokers."""
    brokers = image.brokers
    leader = partition.leader if partition.leader in brokers else NO_LEADER
    return Message(
        error_code=ErrorCode.leader_not_available if leader == NO_LEADER else 0,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[broker for broker in partition.replicas if broker not in brokers],
    )
