"""AlterReplicaLogDirs, v1 and v2: moves replicas to another data folder of this broker, which has only one.

So the request succeeds if it names that folder, since every replica is there already, and any other is
LOG_DIR_NOT_FOUND.
"""

from __future__ import annotations

from pathlib import Path

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace
from headrace.replicas.host import ReplicaHost
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class AlterReplicaLogDirs:
    def __init__(self, host: ReplicaHost, folder: Path) -> None:
        self._host = host
        self._folder = folder

    def __call__(self, request: Request) -> Steps[Message]:
        results, pace = dict[str, list[Message]](), Pace()
        for asked in request.body.dirs:
            folder = Path(asked.path)
            for topic in asked.topics:
                for index in topic.partitions:
                    code = self._place(folder, topic.name, index)
                    results.setdefault(topic.name, []).append(Message(partition_index=index, error_code=code))
                    if pace.is_over():
                        yield
            if pace.is_over():
                yield
        return Message(
            results=[Message(topic_name=name, partitions=partitions) for name, partitions in results.items()]
        )

    def _place(self, folder: Path, topic: str, index: int) -> ErrorCode:
        if folder != self._folder:
            return ErrorCode.log_dir_not_found
        try:
            partition = self._host.find(topic, index)
        except KafkaError:
            return ErrorCode.replica_not_available
        return ErrorCode.none if partition.log.offline is None else ErrorCode.kafka_storage_error
