"""Which operations a client may perform on a topic, a group or the cluster: all, since no client is restricted.

Metadata, DescribeCluster, DescribeTopicPartitions and the two APIs that describe groups return them (KIP-430), as a bit
set with the bit of each operation at its number in `operations.py`. A client that did not request them gets
NOT_ASKED_FOR, which its tools do not show.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.api.operations import Operation, Resource

_OF_EVERY_KIND = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.DESCRIBE)
OPERATIONS = {
    Resource.GROUP: {Operation.READ, Operation.DELETE, *_OF_EVERY_KIND},
    Resource.TOPIC: {
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, *_OF_EVERY_KIND
    },
    Resource.CLUSTER: {
        Operation.CREATE, Operation.ALTER, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE, *_OF_EVERY_KIND
    },
}  # fmt: skip


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED_FOR = -(2**31)
ALL_OF_A_GROUP = _bits(OPERATIONS[Resource.GROUP])
ALL_OF_A_TOPIC = _bits(OPERATIONS[Resource.TOPIC])
ALL_OF_THE_CLUSTER = _bits(OPERATIONS[Resource.CLUSTER])
