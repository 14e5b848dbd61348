"""OffsetForLeaderEpoch, v2 to v4: where a leader epoch ended, so that a reader can detect a diverged log.

Returns the largest epoch up to the requested one, and its end offset (KIP-279); -1 and -1 if there is none. A broker
that sends replica id OWN_LOG gets the last epoch and the end of this broker's own log, leader or not; this is how the
longest log is found before an unclean election. No client uses that id: clients send -1 or -2, and version 2, which has
no replica id, means -2.
"""

from __future__ import annotations

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace
from headrace.replicas.host import ReplicaHost
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message

OWN_LOG = -3


class OffsetForLeaderEpoch:
    def __init__(self, host: ReplicaHost) -> None:
        self._host = host

    def __call__(self, request: Request) -> Steps[Message]:
        own = request.body.replica_id == OWN_LOG
        topics, pace = [], Pace()
        for topic in request.body.topics:
            partitions = []
            for asked in topic.partitions:
                partitions.append(self._one(topic.topic, asked, own))
                if pace.is_over():
                    yield
            topics.append(Message(topic=topic.topic, partitions=partitions))
        return Message(topics=topics)

    def _one(self, topic: str, asked: Message, own: bool) -> Message:
        try:
            if own:
                epoch, end = self._host.find(topic, asked.partition).own_last()
            else:
                partition = self._host.find_readable(topic, asked.partition)
                partition.check_leader(asked.current_leader_epoch)
                epoch, end = partition.end_of_epoch(asked.leader_epoch)
            return Message(partition=asked.partition, leader_epoch=epoch, end_offset=end)
        except KafkaError as error:
            return Message(partition=asked.partition, error_code=error.code, leader_epoch=-1, end_offset=-1)
