"""DeleteRecords, v0 to v2: deletes all records before an offset; -1 means the high watermark.

The response waits until all in-sync replicas have moved their log start offset, so that no election brings the records
back. If that takes longer than the timeout, the client gets REQUEST_TIMED_OUT; the records are still deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.deadline import result_of, settle
from headrace.api.pieces import Pace, in_turns
from headrace.model.image import INTERNAL_TOPICS
from headrace.model.topic_config import TopicConfig
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

_Waiting = list[tuple[asyncio.Future[None], Message]]


class DeleteRecords:
    def __init__(self, host: ReplicaHost, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message]]:
        waiting: _Waiting = []
        topics, pace = [], Pace()
        for topic in request.body.topics:
            partitions = []
            for asked in topic.partitions:
                partitions.append(self._one(topic.name, asked, waiting))
                if pace.is_over():
                    yield
            topics.append(Message(name=topic.name, partitions=partitions))
        response = Message(topics=topics)
        return response if not waiting else self._when_deleted(response, waiting, request.body.timeout_ms)

    def _one(self, topic: str, asked: Message, waiting: _Waiting) -> Message:
        try:
            self._host.refuse_view(topic, "its records are its base's: delete them there")
            partition = self._host.find(topic, asked.partition_index)
            if topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.invalid_topic_exception, f"{topic} is an internal topic")
            _check_policy(partition, partition.log.config)
            start = partition.delete_records(asked.offset)
            answer = Message(partition_index=asked.partition_index, low_watermark=start, error_code=0)
            deleted = partition.deleted_everywhere(start)
            if deleted is not None:
                waiting.append((deleted, answer))
            return answer
        except KafkaError as error:
            return Message(partition_index=asked.partition_index, low_watermark=-1, error_code=error.code)

    async def _when_deleted(self, response: Message, waiting: _Waiting, timeout_ms: int) -> Message:
        await settle(self._clock, timeout_ms, [deleted for deleted, _ in waiting])
        async for deleted, answer in in_turns(waiting):
            try:
                result_of(deleted)
            except KafkaError as error:
                answer.low_watermark, answer.error_code = -1, error.code
        return response


def _check_policy(partition: Partition, config: TopicConfig) -> None:
    """As in Kafka, a topic that is only compacted keeps the latest value of each key."""
    if config.compacted and not config.deleted:
        raise KafkaError(ErrorCode.policy_violation, f"{partition.topic} has cleanup.policy=compact, without delete")
