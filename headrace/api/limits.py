"""How large one request may be, and how much of one is done in a single turn of the event loop.

Read by the table, which may say something else of an API, and by the server. A request beyond MOST_BYTES or MOST_ITEMS
closes its connection. One of more than AT_ONCE_ITEMS is decoded outside the event loop, a response of more than
that is encoded there (server/long_work.py), and handlers do long work in pieces (pieces.py).
"""

from __future__ import annotations

MOST_BYTES = 16 << 20  # of a request that carries no records
MOST_ITEMS = 250_000  # of all arrays of a request together
MOST_DESCRIBED_ITEMS = 20_000  # resources and keys of a DescribeConfigs: each resource has dozens of settings
MOST_PRODUCED_ITEMS = 100_000  # topics and partitions of a Produce
AT_ONCE_ITEMS = 5_000  # they are decoded or encoded in a few milliseconds
ITEM_BYTES = 1024  # of memory, for an item of a request, decoded, with what is made to answer it
