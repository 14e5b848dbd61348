"""ListPartitionReassignments, v0: partitions that are moving to other brokers.

Known gap: this version of headrace moves none, so the list is always empty, as Kafka's is when nothing moves.
"""

from __future__ import annotations

from headrace.api.contract import Request
from headrace.wire.messages import Message


class ListPartitionReassignments:
    def __call__(self, request: Request) -> Message:
        return Message(topics=[])
