"""Encodes rows in columns as record batches, for callers that write many records at once from Arrow's layout.

Called by spark/sink/buffers.py with whole columns (row_columns.py), so that no Python object is made for a record. The
compiled twin does the work if it could be built, otherwise the pure-Python twin. Both return the same bytes as
records.encode_batch does for the same records.

A `Section` is a batch under construction. Invariant: the offset deltas of its records are 0, 1, 2 and so on, and its
size stays within the limit unless its first record alone exceeds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.wire import batches, compression
from headrace.wire.batches import HEADER_BYTES, MAGIC, BatchHeader
from headrace.wire.records import fill_in_header, seal_batch
from headrace.wire.row_columns import Buffer, Rows

if TYPE_CHECKING:
    from headrace.wire import _arrow_encode_py as twin
else:
    try:
        from headrace.wire import _arrow_encode as twin
    except ImportError:
        from headrace.wire import _arrow_encode_py as twin

__all__ = ["COMPILED", "Section", "assign_slots", "order_by_slot"]

COMPILED: bool = twin.__name__.endswith("._arrow_encode")

assign_slots = twin.assign_slots
order_by_slot = twin.order_by_slot


class Section:
    """A batch while rows are added to it: space for the header, then the uncompressed records."""

    __slots__ = ("_base_timestamp", "_bytes", "_max_timestamp", "count")

    def __init__(self) -> None:
        self.count = 0
        self._bytes = bytearray(HEADER_BYTES)
        self._base_timestamp = 0
        self._max_timestamp = batches.NO_TIMESTAMP

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, rows: Rows, order: Buffer, start: int, stop: int, limit_bytes: int) -> int:
        """Add as many of the rows order[start:stop] as fit; returns how many."""
        if start == stop:
            return 0
        if not self.count:
            row = memoryview(order).cast("B").cast("i")[start]
            self._base_timestamp = memoryview(rows.times).cast("B").cast("q")[row]
            self._max_timestamp = self._base_timestamp
        added, latest = twin.append_rows(
            self._bytes, rows, order, start, stop, self.count, self._base_timestamp, limit_bytes
        )
        if added:
            self.count += added
            self._max_timestamp = max(self._max_timestamp, latest)
        return added

    def seal(
        self,
        codec: int,
        producer_id: int = batches.NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = batches.NO_SEQUENCE,
        *,
        transactional: bool = False,
    ) -> bytearray:
        """The finished batch; the section must not be used afterwards."""
        header = BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec | (batches.TRANSACTIONAL if transactional else 0),
            last_offset_delta=self.count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.count,
        )
        if codec == compression.NONE:
            return fill_in_header(self._bytes, header)
        return seal_batch(header, memoryview(self._bytes)[HEADER_BYTES:])
