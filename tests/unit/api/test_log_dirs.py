"""How much disk partitions take, told over the wire."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.api.alter_replica_log_dirs import AlterReplicaLogDirs
from headrace.api.describe_log_dirs import DescribeLogDirs
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from tests.unit.api.admin_room import ask

ALTER_LOG_DIRS, DESCRIBE_LOG_DIRS = 34, 35


def partition(topic: str, index: int, end_offset: int, high_watermark: int) -> Any:
    log = SimpleNamespace(offline=None, size_bytes=10 * end_offset, end_offset=end_offset)
    return SimpleNamespace(topic=topic, index=index, log=log, high_watermark=high_watermark)


@pytest.mark.parametrize("version", range(1, 6))
def test_a_leader_that_waits_for_its_followers_lags_behind_nobody(version: int) -> None:
    host: Any = SimpleNamespace(partitions=lambda: [partition("a", 0, 9, 4), partition("a", 1, 3, 5)])
    handler = DescribeLogDirs(host, Path("/data"), lambda: (1000, 600))
    answer = asyncio.run(ask(handler, DESCRIBE_LOG_DIRS, version, topics=None))
    (folder,) = answer.results
    (topic,) = folder.topics
    assert (folder.error_code, folder.log_dir, topic.name) == (0, "/data", "a")
    told = [(p.partition_index, p.partition_size, p.offset_lag, p.is_future_key) for p in topic.partitions]
    assert told == [(0, 90, 0, False), (1, 30, 2, False)]
    if version >= 4:
        assert (folder.total_bytes, folder.usable_bytes) == (1000, 600)


def test_only_the_partitions_asked_for_are_told() -> None:
    host: Any = SimpleNamespace(partitions=lambda: [partition("a", 0, 9, 4), partition("b", 1, 3, 5)])
    handler = DescribeLogDirs(host, Path("/data"), lambda: (1000, 600))
    asked = [Message(topic="b", partitions=[1, 7]), Message(topic="nobody", partitions=[0])]
    (folder,) = asyncio.run(ask(handler, DESCRIBE_LOG_DIRS, 4, topics=asked)).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in folder.topics] == [("b", [1])]
    (folder,) = asyncio.run(ask(handler, DESCRIBE_LOG_DIRS, 4, topics=[])).results
    assert folder.topics == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_is_in_the_only_folder_already_and_cannot_go_to_another(version: int) -> None:
    def find(topic: str, index: int) -> Any:
        if (topic, index) != ("a", 0):
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return partition("a", 0, 9, 9)

    host: Any = SimpleNamespace(find=find)
    dirs = [
        Message(path="/data", topics=[Message(name="a", partitions=[0, 1])]),
        Message(path="/other", topics=[Message(name="b", partitions=[0])]),
    ]
    handler = AlterReplicaLogDirs(host, Path("/data"))
    answer = asyncio.run(ask(handler, ALTER_LOG_DIRS, version, dirs=dirs))
    told = [(t.topic_name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.results]
    assert told == [
        ("a", [(0, ErrorCode.none), (1, ErrorCode.replica_not_available)]),
        ("b", [(0, ErrorCode.log_dir_not_found)]),
    ]
