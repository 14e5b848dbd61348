"""What a view delivers: the one place that knows which kinds of views there are.

A fetch of a view (view_fetch.py) asks the view's content to look from an offset on, and sends what that finds. A look
is prepared on the event loop, where the partition may be asked, and carried out in a thread, where it may take its time
and wait for the disk. Offsets are those of the base: in a view by tags of its records, in a view of what is pending the
ids of these, which are offsets that the base has given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from headrace.log.pending_batch import Made, pending_batch
from headrace.log.tag_search import KeptBatches, Search, Wanted
from headrace.model.image import TopicImage
from headrace.model.tag_filter import tag_filter
from headrace.replicas.partition import Partition

_ROWS = 2000  # that one look takes, on the event loop
_MOST_BYTES = 1 << 20  # that one look makes


class Look(Struct):
    """What one look has come to."""

    records: bytearray  # whole batches
    last: int  # where the last of them begins
    next_offset: int  # everything before it was looked at
    at_end: bool  # there is nothing behind it yet
    epoch: int  # the leader epoch of the offset before `next_offset`
    scanned_bytes: int = 0  # of the base's log that were gone over or skipped


class ViewContent(Protocol):
    def end(self, partition: Partition, *, stable: bool) -> int:
        """The offset behind everything that a reader may see now; `stable`: a reader with read_committed."""
        ...

    def look(self, partition: Partition, offset: int, max_bytes: int, *, stable: bool) -> Callable[[], Look]:
        """A look from `offset` on, before that end. What it finds is at most `max_bytes`, or a single batch. It ends
        early rather than take long, and then is not `at_end`. Control batches are not for readers of views."""
        ...


class TagContent:
    """The records of the base whose tags match, at their own offsets."""

    def __init__(self, wanted: Wanted, kept: KeptBatches) -> None:
        self._wanted = wanted
        self._kept = kept

    def end(self, partition: Partition, *, stable: bool) -> int:
        return _end(partition, stable=stable)

    def look(self, partition: Partition, offset: int, max_bytes: int, *, stable: bool) -> Callable[[], Look]:
        below, log = self.end(partition, stable=stable), partition.log
        search = Search(log, (partition.topic_id, partition.index), self._wanted, self._kept)

        def look() -> Look:
            found = search.run(offset, below, max_bytes, stable=stable)
            last = found.size - len(found.batches[-1]) if found.batches else 0
            epoch = log.epochs.epoch_of(max(0, found.next_offset - 1))
            return Look(
                bytearray().join(found.batches), last, found.next_offset, found.at_end, epoch, found.scanned_bytes
            )

        return look


class PendingContent:
    """The delayed records of the base that are pending, in the order of their ids, each at its id: a snapshot of what
    is there when the reader comes by. Served by the leader, whose clock and log decide what is pending."""

    def end(self, partition: Partition, *, stable: bool) -> int:
        return _end(partition, stable=stable)

    def look(self, partition: Partition, offset: int, max_bytes: int, *, stable: bool) -> Callable[[], Look]:
        below, log = self.end(partition, stable=stable), partition.log
        taken = log.pending_rows(offset, _ROWS)
        rows = [row for row in taken if row.id < below]
        complete = len(rows) < len(taken) or len(taken) < _ROWS

        def look() -> Look:
            made = pending_batch(log, rows, min(max_bytes, _MOST_BYTES)) if rows else Made(bytearray())
            at_end = complete and made.count == len(rows)
            next_offset = below if at_end else rows[made.count - 1].id + 1
            epoch = log.epochs.epoch_of(max(log.start_offset, next_offset - 1))
            return Look(made.records, 0, next_offset, at_end, epoch, made.read_bytes)

        return look


def _end(partition: Partition, *, stable: bool) -> int:
    return partition.last_stable_offset if stable else partition.high_watermark


def content_of(view: TopicImage, kept: KeptBatches) -> ViewContent:
    """What this view delivers. Its settings were checked when it was created, and stay."""
    if view.shows_pending:
        return PendingContent()
    return TagContent(Wanted.of(tag_filter(view.settings)), kept)
