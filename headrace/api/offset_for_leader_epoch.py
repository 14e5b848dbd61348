"""OffsetForLeaderEpoch, v2 to v4: where a leader epoch ended, so that a reader can see whether its history diverged.

The answer is the largest epoch up to the one asked for, and its end (KIP-279); -1 and -1 if there is none. A broker
that asks in the name of replica OWN_LOG asks for the last epoch and the end of this broker's own log, whether it leads
or not: that is how the longest log is found when nobody is left who is known to have everything. No client uses that
number; -1 and -2 are theirs, and version 2, which names no replica, stands for -2.
"""

from __future__ import annotations

from headrace.api.contract import Request
from headrace.replicas.host import ReplicaHost
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message

OWN_LOG = -3


class OffsetForLeaderEpoch:
    def __init__(self, host: ReplicaHost) -> None:
        self._host = host

    def __call__(self, request: Request) -> Message:
        own = request.body.replica_id == OWN_LOG
        topics = []
        for topic in request.body.topics:
            partitions = [self._one(topic.topic, asked, own) for asked in topic.partitions]
            topics.append(Message(topic=topic.topic, partitions=partitions))
        return Message(topics=topics)

    def _one(self, topic: str, asked: Message, own: bool) -> Message:
        try:
            partition = self._host.find(topic, asked.partition)
            if own:
                epoch, end = partition.own_last()
            else:
                partition.check_leader(asked.current_leader_epoch)
                epoch, end = partition.end_of_epoch(asked.leader_epoch)
            return Message(partition=asked.partition, leader_epoch=epoch, end_offset=end)
        except KafkaError as error:
            return Message(partition=asked.partition, error_code=error.code, leader_epoch=-1, end_offset=-1)
