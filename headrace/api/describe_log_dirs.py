"""DescribeLogDirs, v1 to v5: the size of each partition on disk. A broker has one data folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message


class DescribeLogDirs:
    def __init__(self, host: ReplicaHost, folder: Path, space: Callable[[], tuple[int, int]]) -> None:
        """`space` returns the total and the usable bytes of the folder's disk."""
        self._host = host
        self._folder = folder
        self._space = space

    def __call__(self, request: Request) -> Steps[Message]:
        asked, pace = request.body.topics, Pace()
        wanted = None if asked is None else {topic.topic: set(topic.partitions) for topic in asked}
        topics: dict[str, list[Message]] = {}
        offline = False
        for partition in list(self._host.partitions()):
            if pace.is_over():
                yield
            offline = offline or partition.log.offline is not None
            if wanted is None or partition.index in wanted.get(partition.topic, ()):
                topics.setdefault(partition.topic, []).append(_partition(partition))
        total, usable = self._space()
        folder = Message(
            error_code=ErrorCode.kafka_storage_error if offline else ErrorCode.none,
            log_dir=str(self._folder),
            topics=[Message(name=name, partitions=partitions) for name, partitions in topics.items()],
            total_bytes=total,
            usable_bytes=usable,
        )
        return Message(results=[folder])


def _partition(partition: Partition) -> Message:
    return Message(
        partition_index=partition.index,
        partition_size=partition.log.size_bytes,
        offset_lag=max(0, partition.high_watermark - partition.log.end_offset),  # missing committed records
        is_future_key=False,
    )
