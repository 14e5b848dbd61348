"""ListOffsets: which times have a meaning in which version, and partitions that are asked for twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from headrace.testing.local_broker import LocalBroker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.raw_client import RawClient

LIST_OFFSETS, METADATA = 2, 3


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as opened:
        opened.call(METADATA, 4, Message(topics=[Message(name="orders")], allow_auto_topic_creation=True))
        yield opened


def listed(client: RawClient, version: int, times: Sequence[int], indexes: Sequence[int] = (0,)) -> list[Message]:
    partitions = [
        Message(partition_index=index, current_leader_epoch=-1, timestamp=time) for index in indexes for time in times
    ]
    body = Message(
        replica_id=-1, isolation_level=0, topics=[Message(name="orders", partitions=partitions)], timeout_ms=1000
    )
    found: list[Message] = client.call(LIST_OFFSETS, version, body).topics[0].partitions
    return found


@pytest.mark.parametrize("version", range(1, 12))
def test_a_special_time_has_its_meaning_from_its_version_on(client: RawClient, version: int) -> None:
    for time, since in ((-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)):
        (answer,) = listed(client, version, [time])
        assert answer.error_code == (0 if version >= since else ErrorCode.unsupported_version), time
        if answer.error_code:
            assert (answer.offset, answer.timestamp) == (-1, -1)


def test_a_partition_that_is_named_twice_is_refused_and_others_are_answered(client: RawClient) -> None:
    twice = listed(client, 7, [-1, -2])
    assert [part.error_code for part in twice] == [ErrorCode.invalid_request] * 2
    (once,) = listed(client, 7, [-1])
    assert (once.error_code, once.offset) == (0, 0)
