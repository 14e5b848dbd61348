"""DeleteRecords, v0 to v2: truncation of history. Everything before the offset goes; -1 means all that is committed."""

from __future__ import annotations

from headrace.api.contract import Request
from headrace.model.topic_config import TopicConfig
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class DeleteRecords:
    def __init__(self, host: ReplicaHost) -> None:
        self._host = host

    def __call__(self, request: Request) -> Message:
        return Message(
            topics=[
                Message(name=topic.name, partitions=[self._one(topic.name, asked) for asked in topic.partitions])
                for topic in request.body.topics
            ]
        )

    def _one(self, topic: str, asked: Message) -> Message:
        try:
            partition = self._host.find(topic, asked.partition_index)
            _check_policy(partition, partition.log.config)
            start = partition.delete_records(asked.offset)
            return Message(partition_index=asked.partition_index, low_watermark=start)
        except KafkaError as error:
            return Message(partition_index=asked.partition_index, low_watermark=-1, error_code=error.code)


def _check_policy(partition: Partition, config: TopicConfig) -> None:
    """As in Kafka, a topic that is only compacted keeps its latest values."""
    if not config.deleted:
        raise KafkaError(ErrorCode.policy_violation, f"{partition.topic} has cleanup.policy=compact, without delete")
