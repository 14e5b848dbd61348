"""DescribeProducers, v0: the producers of a partition, and the start offset of their open transactions (KIP-664).

Tools use it to find hanging transactions: those that a partition holds open although no coordinator knows them. A
partition that is named repeatedly is described once, since it may have very many producers. A view has none: those of
its records are its base's.
"""

from __future__ import annotations

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace
from headrace.model.names import topic_name_problem
from headrace.replicas.host import ReplicaHost
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class DescribeProducers:
    def __init__(self, host: ReplicaHost) -> None:
        self._host = host

    def __call__(self, request: Request) -> Steps[Message]:
        topics, pace = dict[str, dict[int, Message]](), Pace()
        for topic in request.body.topics:
            partitions = topics.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                if index not in partitions:
                    partitions[index] = yield from self._one(topic.name, index, pace)
                if pace.is_over():
                    yield
        return Message(topics=[Message(name=name, partitions=[*found.values()]) for name, found in topics.items()])

    def _one(self, topic: str, index: int, pace: Pace) -> Steps[Message]:
        try:
            problem = topic_name_problem(topic)
            if problem is not None:
                raise KafkaError(ErrorCode.invalid_topic_exception, problem)
            partition = self._host.find_readable(topic, index)
            partition.check_leader(-1)
            if self._host.view(topic) is not None:
                return Message(partition_index=index, active_producers=[])
        except KafkaError as error:
            return Message(partition_index=index, error_code=error.code, error_message=error.message or None)
        producers = []
        for producer in partition.log.producers_described():
            producers.append(
                Message(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.used_ms,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.open_since,
                )
            )
            if pace.is_over():
                yield
        return Message(partition_index=index, active_producers=producers)
