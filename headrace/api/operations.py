"""What can be done to what, in Kafka's numbers: operations, the types of resources, and what a request needs.

`api/table.py` says what each API needs, `api/gate.py` answers whether a caller may, `api/authorized_operations.py`
tells clients. The numbers are those of AclOperation and ResourceType in Kafka's protocol.
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
NONE: Needs = ()  # nothing is asked of the caller: ApiVersions, and the handshakes before authentication
