"""How large one request may be, and how much of one is done in a single turn of the event loop.

Read by the table, which may say something else of an API, and by the server. A request beyond MOST_BYTES, or with more
items than its API allows, closes its connection. One of more than AT_ONCE_ITEMS is decoded outside the event loop, a
response of more than that is encoded there (server/long_work.py), and handlers do long work in pieces (pieces.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headrace.wire.api_keys import ApiKey

MOST_BYTES = 16 << 20  # of a request that carries no records
MOST_ITEMS = 250_000  # of all arrays of a request together
AT_ONCE_ITEMS = 5_000  # they are decoded or encoded in a few milliseconds
ITEM_BYTES = 1024  # of memory, for an item of a request, decoded, with what is made to answer it

FEWER_ITEMS: Mapping[ApiKey, int] = MappingProxyType(
    {
        ApiKey.PRODUCE: 100_000,  # each is a write
        ApiKey.DESCRIBE_CONFIGS: 20_000,  # each resource has dozens of settings
        ApiKey.CREATE_TOPICS: 100_000,  # topics, partitions and replicas, each topic with a decision of the controller
        ApiKey.CREATE_PARTITIONS: 100_000,
        ApiKey.DELETE_TOPICS: 20_000,
        ApiKey.ALTER_CONFIGS: 50_000,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 50_000,
        ApiKey.ELECT_LEADERS: 120_000,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: 120_000,
        ApiKey.DELETE_GROUPS: 20_000,  # each with a record of its own
        ApiKey.LEAVE_GROUP: 10_000,  # members of one group, of which a message is made in one go
        ApiKey.JOIN_GROUP: 10_000,
        ApiKey.SYNC_GROUP: 10_000,
        ApiKey.OFFSET_FETCH: 120_000,  # looked up in one go
        ApiKey.CONSUMER_GROUP_HEARTBEAT: 120_000,  # what one member has
        ApiKey.OFFSET_DELETE: 20_000,
        ApiKey.SHARE_GROUP_HEARTBEAT: 120_000,
        ApiKey.SHARE_FETCH: 50_000,  # acknowledgements are staged in one go
        ApiKey.SHARE_ACKNOWLEDGE: 50_000,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 50_000,  # each asks the share coordinator
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: 20_000,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: 20_000,
        ApiKey.ADD_PARTITIONS_TO_TXN: 20_000,
        ApiKey.UPDATE_FEATURES: 1_000,
    }
)
