"""How a transaction of a producer ends in one partition: the content of a marker.

Shared by coordinators, which decide it, and replicas and their log, which write it.
"""

from __future__ import annotations

from msgspec import Struct

BUMPING_VERSION = 2  # from this transaction.version on, every end of a transaction raises the epoch (KIP-890)


class TransactionEnd(Struct, frozen=True):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    version: int  # transaction.version

    @property
    def strict(self) -> bool:
        """Its epoch is above that of the records, so a late record is distinguishable from the next transaction's."""
        return self.version >= BUMPING_VERSION
