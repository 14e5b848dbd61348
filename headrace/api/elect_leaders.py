"""ElectLeaders, v0 to v2: elects the preferred replica (type 0), or any live one where there is no leader (type 1).

Null means every partition; then those that need no election are omitted from the response, as in Kafka. A partition
that is named repeatedly is elected once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

from headrace.api.contract import Request, Steps
from headrace.api.deadline import result_of, settle
from headrace.api.pieces import Pace, in_turns
from headrace.cluster.controller import Controller
from headrace.cluster.view import ClusterView
from headrace.model.image import PartitionImage
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

_PREFERRED, _UNCLEAN = 0, 1
_PARTITIONS = 100  # that the controller is asked about in one piece


class ElectLeaders:
    def __init__(self, controller: Controller, view: ClusterView, clock: Clock) -> None:
        self._controller = controller
        self._view = view
        self._clock = clock

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message]]:
        body, pace = request.body, Pace(_PARTITIONS)
        if body.election_type not in (_PREFERRED, _UNCLEAN):
            return Message(error_code=ErrorCode.invalid_request)
        unclean = body.election_type == _UNCLEAN
        electing: dict[TopicPartition, asyncio.Future[PartitionImage]] = {}
        for place in self._asked(body):
            if place not in electing:
                electing[place] = self._controller.elect_leader(*place, unclean=unclean)
            if pace.is_over():
                yield
        return self._answer(electing, body.timeout_ms, everything=body.topic_partitions is None)

    def _asked(self, body: Message) -> Iterator[TopicPartition]:
        if body.topic_partitions is None:
            for topic in self._view.image.topics.values():
                for partition in topic.partitions:
                    yield TopicPartition(topic.name, partition.index)
        else:
            for asked in body.topic_partitions:
                for index in asked.partitions:
                    yield TopicPartition(asked.topic, index)

    async def _answer(
        self, electing: dict[TopicPartition, asyncio.Future[PartitionImage]], timeout_ms: int, everything: bool
    ) -> Message:
        await settle(self._clock, timeout_ms, list(electing.values()))
        results: dict[str, list[Message]] = {}
        async for (topic, index), answer in in_turns(electing.items()):
            result = Message(partition_id=index)
            try:
                result_of(answer)
            except KafkaError as error:
                if everything and error.code is ErrorCode.election_not_needed:
                    continue
                result.error_code, result.error_message = error.code, error.message
            results.setdefault(topic, []).append(result)
        return Message(
            replica_election_results=[
                Message(topic=topic, partition_result=partitions) for topic, partitions in results.items()
            ]
        )
