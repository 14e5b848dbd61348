"""The requests of `headrace cluster balance`: the current placement, and reassignments of partitions.

If the command is stopped, the cluster completes every reassignment that has begun. An error is a Failure that names the
partition or the broker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from headrace.cli.direct_requests import DirectRequests
from headrace.cli.screen import plural, remark
from headrace.cluster.balance import Held
from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

Moves = Mapping[TopicPartition, tuple[int, ...]]

_PREFERRED = 0
_LOOK_S = 0.5
_TIMEOUT_MS = 20_000


def standing(requests: DirectRequests) -> tuple[list[Held], dict[int, str | None]]:
    """Every partition with its size, and the rack of every live broker."""
    cluster = requests.metadata()
    sizes: dict[TopicPartition, int] = {}
    for node in cluster.brokers:
        answer = requests.call((node.host, node.port), ApiKey.DESCRIBE_LOG_DIRS, 2, Message(topics=None))
        for topic in (topic for folder in answer.results for topic in folder.topics):
            for found in topic.partitions:
                place = TopicPartition(topic.name, found.partition_index)
                sizes[place] = max(sizes.get(place, 0), found.partition_size)
    partitions = [
        Held(
            topic.name,
            one.partition_index,
            tuple(one.replica_nodes),
            sizes.get(TopicPartition(topic.name, one.partition_index), 0),
        )
        for topic in cluster.topics
        for one in topic.partitions
    ]
    return partitions, {node.node_id: node.rack for node in cluster.brokers}


def under_way(requests: DirectRequests) -> set[TopicPartition]:
    answer = requests.anywhere(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, Message(topics=None, timeout_ms=_TIMEOUT_MS))
    return {TopicPartition(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions}


def carry_out(requests: DirectRequests, moves: Moves, at_once: int) -> None:
    """Returns when every reassignment is complete and the preferred replicas lead."""
    waiting = list(moves)
    told = -1
    while True:
        moving = under_way(requests)
        starting = waiting[: max(0, at_once - len(moving))]
        if starting:
            del waiting[: len(starting)]
            _begin(requests, {place: moves[place] for place in starting})
            continue
        arrived = len(moves) - len(waiting) - len(moving)
        if arrived != told:
            told = arrived
            remark(f"{arrived} of {plural(len(moves), 'partition')} in place")
        if arrived == len(moves):
            break
        time.sleep(_LOOK_S)
    preferred = Message(election_type=_PREFERRED, topic_partitions=None, timeout_ms=_TIMEOUT_MS)
    requests.anywhere(ApiKey.ELECT_LEADERS, 2, preferred)


def _begin(requests: DirectRequests, moves: Moves) -> None:
    topics: dict[str, list[Message]] = {}
    for (topic, index), replicas in moves.items():
        topics.setdefault(topic, []).append(Message(partition_index=index, replicas=list(replicas)))
    asked = [Message(name=name, partitions=partitions) for name, partitions in topics.items()]
    answer = requests.anywhere(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, Message(topics=asked, timeout_ms=_TIMEOUT_MS))
    if answer.error_code != ErrorCode.none:
        why = answer.error_message or ErrorCode(answer.error_code).name
        raise Failure(f"the cluster does not accept reassignments now: {why}")
    for topic in answer.responses:
        for told in topic.partitions:
            if told.error_code not in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):  # deleted meanwhile
                why = told.error_message or ErrorCode(told.error_code).name
                raise Failure(f"{topic.name} partition {told.partition_index} cannot be moved: {why}")
