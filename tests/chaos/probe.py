"""How soon a partition is writable again after a kill, measured by requests to the brokers several times a second.

Called by faults.py after a kill. Kafka clients look for a new leader only once a second and may lose more time, so they
would measure themselves rather than the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from headrace.client.blocking import Address, BlockingConnection, ConnectionLost
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.record import Record
from headrace.wire.records import encode_batch

PRODUCE_VERSION, METADATA_VERSION = 9, 9  # versions that name topics
_PAUSE_S = 0.1
_PATIENCE_S = 3.0  # with one broker


def seconds_until_writable(brokers: Sequence[Address], topic: str, patience_s: float = 60.0) -> float | None:
    """The time until the topic's first partition acknowledges a write with acks=all; None if it does not."""
    start_s = time.monotonic()
    while time.monotonic() - start_s < patience_s:
        for broker in brokers:
            try:
                if _writes(_leader(broker, topic), topic):
                    return time.monotonic() - start_s
            except ConnectionLost:
                continue
        time.sleep(_PAUSE_S)
    return None


def _leader(broker: Address, topic: str) -> Address | None:
    with BlockingConnection(broker, "probe", _PATIENCE_S) as connection:
        asked = Message(topics=[Message(name=topic)], allow_auto_topic_creation=False)
        answer = connection.call(ApiKey.METADATA, asked, version=METADATA_VERSION)
    places = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
    partitions = answer.topics[0].partitions
    return places.get(partitions[0].leader_id) if partitions else None


def _writes(leader: Address | None, topic: str) -> bool:
    if leader is None:
        return False
    records = bytes(encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"probe", ())]))
    data = Message(name=topic, partition_data=[Message(index=0, records=records)])
    body = Message(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[data])
    with BlockingConnection(leader, "probe", _PATIENCE_S) as connection:
        answer = connection.call(ApiKey.PRODUCE, body, version=PRODUCE_VERSION)
    return bool(answer.responses[0].partition_responses[0].error_code == ErrorCode.none)
