"""Which operations a client may do on a topic, a group or the cluster: all of them, for nobody is restricted here.

Metadata, DescribeCluster, DescribeTopicPartitions and the two describes of groups tell it (KIP-430), each as a number
with one bit for every operation that such a resource has. A client that did not ask gets NOT_ASKED_FOR, which it shows
as nothing. The numbers of the bits are Kafka's.
"""

from __future__ import annotations

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED_FOR = -(2**31)
ALL_OF_A_GROUP = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
ALL_OF_A_TOPIC = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
ALL_OF_THE_CLUSTER = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)
