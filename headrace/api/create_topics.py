"""CreateTopics, v2 to v7: each topic is created or rejected on its own.

-1 partitions or replicas mean the broker's defaults (KIP-464). Since v5 the response describes the new topic with all
settings; since v7 it has the topic's id. A name that appears twice in a request is rejected, with one result, and no
topic is created for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping

from headrace.api.contract import Request, Steps
from headrace.api.deadline import result_of, settle
from headrace.api.pieces import Pace
from headrace.api.setting_entries import BrokerPlaces, places_of, topic_entries
from headrace.cluster.controller import Controller
from headrace.cluster.topic_changes import NewTopic
from headrace.cluster.view import ClusterView
from headrace.model.image import ClusterImage, TopicImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

TOPICS = 20  # that the controller is asked for, or that are described with all settings, in one piece


class CreateTopics:
    def __init__(
        self,
        controller: Controller,
        view: ClusterView,
        clock: Clock,
        broker_id: int,
        file_settings: Mapping[str, str],
    ) -> None:
        self._controller = controller
        self._view = view
        self._clock = clock
        self._broker_id = broker_id
        self._file_settings = file_settings

    def __call__(self, request: Request) -> Steps[Awaitable[Steps[Message]]]:
        body, pace = request.body, Pace(TOPICS)
        times = Counter(topic.name for topic in body.topics)
        making: dict[str, asyncio.Future[TopicImage]] = {}
        refused: dict[str, KafkaError] = {}
        for topic in body.topics:
            try:
                new = _new_topic(topic, times[topic.name])
            except KafkaError as error:
                refused[topic.name] = error.with_traceback(None)  # its frames would keep all others
            else:
                making[topic.name] = self._controller.create_topic(new, validate_only=body.validate_only)
            if pace.is_over():
                yield
        return self._made(list(times), making, refused, body.timeout_ms)

    async def _made(
        self,
        names: list[str],
        making: dict[str, asyncio.Future[TopicImage]],
        refused: dict[str, KafkaError],
        timeout_ms: int,
    ) -> Steps[Message]:
        await settle(self._clock, timeout_ms, list(making.values()))
        return self._answer(names, making, refused)

    def _answer(
        self, names: list[str], making: dict[str, asyncio.Future[TopicImage]], refused: dict[str, KafkaError]
    ) -> Steps[Message]:
        places = places_of(self._view.image, self._broker_id, self._file_settings)
        topics, pace = list[Message](), Pace(TOPICS)
        for name in names:
            try:
                if name in refused:
                    raise refused[name]
                topics.append(_made(result_of(making[name]), places, self._view.image))
            except KafkaError as error:
                topics.append(Message(name=name, error_code=error.code, error_message=error.message))
            if pace.is_over():
                yield
        return Message(topics=topics)


def _new_topic(topic: Message, times: int) -> NewTopic:
    if times > 1:
        raise KafkaError(ErrorCode.invalid_request, f"topic {topic.name!r} appears {times} times in the request")
    assignments = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
    settings = {config.name: config.value for config in topic.configs}
    if len(assignments) != len(topic.assignments):
        raise KafkaError(ErrorCode.invalid_replica_assignment, f"a partition of {topic.name!r} is assigned twice")
    if len(settings) != len(topic.configs):
        raise KafkaError(ErrorCode.invalid_config, f"a setting of topic {topic.name!r} is given twice")
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignments or None, settings)


def _made(topic: TopicImage, places: BrokerPlaces, image: ClusterImage) -> Message:
    partitions = image.partitions_of(topic)
    return Message(
        name=topic.name,
        topic_id=topic.id,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas) if partitions else -1,
        configs=[
            Message(
                name=entry.setting.name,
                value=entry.value,
                read_only=entry.setting.read_only,
                config_source=entry.source,
            )
            for entry in topic_entries(topic, places)
        ],
    )
