"""Asks other brokers for the ends of their logs, before an unclean election.

Plugged into the controller (`cluster/recovery.py` decides when to ask). Sends OffsetForLeaderEpoch with replica id -3
(`OWN_LOG`), to which every replica answers with the end of its own log, leader or not. A broker that does not answer in
time is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.api.offset_for_leader_epoch import OWN_LOG
from headrace.client.blocking import ConnectionLost
from headrace.cluster.election import LogEnd
from headrace.model.image import BrokerImage
from headrace.model.topic_partition import TopicPartition
from headrace.server.peers import Peers
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

logger = logging.getLogger(__name__)

_VERSION = 4
_ANSWER_S = 3.0


class PeersLogEnds:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def ask(self, broker: BrokerImage, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LogEnd]:
        topics: dict[str, list[Message]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(Message(partition=index, current_leader_epoch=-1, leader_epoch=-1))
        question = Message(
            replica_id=OWN_LOG, topics=[Message(topic=name, partitions=asked) for name, asked in topics.items()]
        )
        try:
            answer = await self._peers.call(
                broker, ApiKey.OFFSET_FOR_LEADER_EPOCH, question, _VERSION, timeout_s=_ANSWER_S
            )
        except (ConnectionLost, KafkaError) as error:
            logger.info("broker %d did not return its log end offsets: %s", broker.id, error)
            return {}
        return {
            TopicPartition(topic.topic, found.partition): (found.leader_epoch, found.end_offset)
            for topic in answer.topics
            for found in topic.partitions
            if found.error_code == ErrorCode.none
        }
