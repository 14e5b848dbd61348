"""Operations, types of resources, and which of them a request needs, with Kafka's numbers.

`api/table.py` lists what each API needs, `api/gate.py` decides whether a caller may do it, and
`api/authorized_operations.py` reports it to clients. The numbers are those of AclOperation and ResourceType in Kafka.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class Operation(IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"  # the name of the one resource of type CLUSTER
EVERY = "*"  # any resource of a type


class Need(Struct, frozen=True):
    """One operation on one type of resource."""

    operation: Operation
    resource: Resource


Needs = tuple[Need, ...]
NONE: Needs = ()  # no permission is needed: ApiVersions, and the handshakes before authentication
