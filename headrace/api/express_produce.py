"""The express lane of Produce: one batch set for one partition, which is nearly every request of every client.

Such a request is read and its answer written as bytes (api.express_codec), where the full path (api.produce) builds
messages for it; the append between the two is the same. Whatever is unusual in a request, or goes wrong with it, is
left to the full path: nothing has happened by then, since a failed append changes nothing. What is allowed the gate
(api.gate) decides for both paths. A property test runs both on equal logs and compares replies and logs byte for byte.
"""

from __future__ import annotations

from headrace.api.contract import Caller
from headrace.api.express_codec import read_produce, write_produce
from headrace.api.gate import ACKS_ALL, Gate
from headrace.log.opening import Unprepared
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.batches import Buffer
from headrace.wire.errors import KafkaError


class ExpressProduce:
    def __init__(self, host: ReplicaHost, gate: Gate) -> None:
        self._host = host
        self._gate = gate

    def __call__(
        self, frame: memoryview, version: int, at: int, correlation_id: int, caller: Caller
    ) -> list[Buffer] | None:
        """The whole reply; None if this request must take the full path."""
        asked = read_produce(frame, version, at)
        if asked is None:
            return None
        acks, topic, index, records = asked
        try:
            if isinstance(topic, str):
                partition = self._host.find(topic, index)
            else:
                partition = self._host.find_by_wire_id(topic, index)
            if not _answers_at_once(partition, acks):
                return None
            self._gate.check_writer(caller, partition.topic)
            self._gate.check_in_sync(acks, partition, records)
            done = partition.append(records)
        except (KafkaError, Unprepared):
            return None
        offsets = (done.base_offset, done.append_time_ms, done.log_start_offset)
        return [write_produce(version, correlation_id, topic, index, *offsets)]


def _answers_at_once(partition: Partition, acks: int) -> bool:
    """Whether the answer under these acks is known when the append returns."""
    return (acks == 1 and not partition.log.config.fsync) or (acks == ACKS_ALL and partition.commits_at_once)
