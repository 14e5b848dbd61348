"""DescribeProducers, v0: the producers of a partition, and the start offset of their open transactions (KIP-664).

Tools use it to find hanging transactions: those that a partition holds open although no coordinator knows them.
"""

from __future__ import annotations

from headrace.api.contract import Request
from headrace.model.names import topic_name_problem
from headrace.replicas.host import ReplicaHost
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class DescribeProducers:
    def __init__(self, host: ReplicaHost) -> None:
        self._host = host

    def __call__(self, request: Request) -> Message:
        return Message(
            topics=[
                Message(name=topic.name, partitions=[self._one(topic.name, index) for index in topic.partition_indexes])
                for topic in request.body.topics
            ]
        )

    def _one(self, topic: str, index: int) -> Message:
        try:
            problem = topic_name_problem(topic)
            if problem is not None:
                raise KafkaError(ErrorCode.invalid_topic_exception, problem)
            partition = self._host.find(topic, index)
            partition.check_leader(-1)
        except KafkaError as error:
            return Message(partition_index=index, error_code=error.code, error_message=error.message or None)
        producers = [
            Message(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.used_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.open_since,
            )
            for producer in partition.log.producers_described()
        ]
        return Message(partition_index=index, active_producers=producers)
