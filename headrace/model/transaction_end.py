"""How a transaction of a producer ends in one partition: what a marker says.

A shared noun: coordinators decide it, replicas and their log write it.
"""

from __future__ import annotations

from msgspec import Struct

BUMPING_VERSION = 2  # transaction.version from which on every end of a transaction has an epoch of its own (KIP-890)


class TransactionEnd(Struct, frozen=True):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    version: int  # transaction.version

    @property
    def strict(self) -> bool:
        """Its epoch is above that of the records, so a late record can be told from one of the next transaction."""
        return self.version >= BUMPING_VERSION
