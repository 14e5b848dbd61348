"""From stored batches to what a share group may be handed out of them. Pure; called by api/share_fetch.

Control batches, batches of aborted transactions (if the group reads committed records only), and offsets that no batch
has are nothing to deliver: they are archived when they are met. A batch that has lost single records to compaction is
handed out as a whole, and clients acknowledge its gaps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from headrace.log.partition_log import PartitionLog
from headrace.replicas.share.acquisition import Acquired, Span
from headrace.wire.batches import BatchHeader, Buffer, walk
from headrace.wire.end_markers import read_marker


class SharedBatches:
    """The batches that were read from one offset on."""

    def __init__(self, data: Buffer, offset: int, aborted: Aborted | None) -> None:
        self._data = data
        self._lasts: list[int] = []
        self._begins: list[int] = []
        self._ends: list[int] = []
        self.spans: list[Span] = []
        self._offset = self.next_offset = offset
        for at, header in walk(data):
            dead = aborted is not None and aborted.includes(data, at, header)
            if header.next_offset > self.next_offset:
                self._add(at, header, deliverable=not (header.is_control or dead))

    def _add(self, at: int, header: BatchHeader, *, deliverable: bool) -> None:
        first = max(header.base_offset, self.next_offset)
        if first > self.next_offset:
            self.spans.append(Span(self.next_offset, first - 1, deliverable=False))
        self.spans.append(Span(first, header.last_offset, deliverable))
        self._lasts.append(header.last_offset)
        self._begins.append(at)
        self._ends.append(at + header.size)
        self.next_offset = header.next_offset

    @property
    def record_bytes(self) -> float:
        """Of one record, about."""
        return len(self._data) / max(1, self.next_offset - self._offset)

    def bytes_of(self, acquired: Sequence[Acquired]) -> memoryview:
        """The batches from the first to the last record that was acquired."""
        if not acquired:
            return memoryview(b"")
        first = bisect_left(self._lasts, acquired[0].first)
        last = bisect_left(self._lasts, acquired[-1].last)
        return memoryview(self._data)[self._begins[first] : self._ends[last]]


class Aborted:
    """Which batches belong to aborted transactions, told in the order of the log."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """(producer id, first offset) of each that a reader of these batches meets."""
        self._ahead = sorted(transactions, key=lambda transaction: transaction[1], reverse=True)
        self._open: set[int] = set()

    def includes(self, data: Buffer, at: int, header: BatchHeader) -> bool:
        while self._ahead and self._ahead[-1][1] <= header.last_offset:
            self._open.add(self._ahead.pop()[0])
        if not header.is_control:
            return header.is_transactional and header.producer_id in self._open
        if header.producer_id in self._open:
            marker = read_marker(data, at)
            if marker is not None and not marker.commit:
                self._open.discard(header.producer_id)
        return False


def shared_batches(data: Buffer, offset: int, log: PartitionLog, *, read_committed: bool) -> SharedBatches:
    aborted = None
    if read_committed and log.aborted_txns:
        end = max((header.next_offset for _, header in walk(data)), default=offset)
        aborted = Aborted(log.aborted(offset, end))
    return SharedBatches(data, offset, aborted)
