"""What a consumer is given of stored batches: the one step between the log and every reply to a consumer.

Deduplication and compaction take records out of batches and keep the offsets, so a batch may have fewer records than
offsets, or none at all. Not every client copes with that. librdkafka takes an answer without a record for one that was
cut short: it doubles the size that it asks for, raises MSG_SIZE_TOO_LARGE after about ten such answers, and its
position never passes offsets that have no record. So

- a slice without a record for its reader becomes one marker over its offsets;
- a slice up to the end of what its reader may see, whose last offsets have no record, ends with a marker over these:
  the reader's position reaches the end, and its lag becomes 0;
- batches without records are cut out, since kafka-go's reader panics on one that comes before others;
- notes (wire/notes.py), which are the broker's own, are cut out.

A marker is a control batch like that which ends a transaction (wire/end_markers.py), but of no producer. Clients skip
it and go on after its last offset.

Called by reading.py when it loads a slice for a consumer, and only for logs that have such batches (`thinned`): other
logs pay nothing. Replicas get the bytes as they are stored.
"""

from __future__ import annotations

from headrace.wire import records as wire_records
from headrace.wire.batches import BatchHeader, Buffer, read_header, walk
from headrace.wire.end_markers import skip_marker
from headrace.wire.errors import Malformed, TooMuch

_LARGEST_DELTA = 0x7FFFFFFF


def is_thinned(header: BatchHeader) -> bool:
    """Whether some offset of this batch has no record."""
    return header.record_count <= header.last_offset_delta


def visible(stored: Buffer, offset: int, *, at_end: bool, limit_bytes: int | None = None) -> Buffer:
    """What a reader at `offset` is given of these batches. `at_end`: it may see nothing after them yet. TooMuch if a
    batch opens into more than `limit_bytes`."""
    batches = list(walk(stored))
    if not batches:
        return stored
    newest = batches[-1][1]
    kept = [(at, header) for at, header in batches if header.record_count and not header.is_note]
    if not kept:
        return _marker(offset, newest)
    at, last = kept[-1]
    if len(kept) < len(batches):
        view = memoryview(stored)
        stored = b"".join([view[at : at + header.size] for at, header in kept])
        at = len(stored) - last.size
    return _shown(stored, at, last, offset, newest, at_end, limit_bytes)


def _shown(
    stored: Buffer, at: int, last: BatchHeader, offset: int, newest: BatchHeader, at_end: bool, limit_bytes: int | None
) -> Buffer:
    """What is given of batches with records, of which the `last` begins at byte `at`, in place of a slice that ends
    with the `newest` batch."""
    if last.base_offset >= offset and not at_end:
        return stored
    try:
        thinned = is_thinned(last)
        reached = wire_records.last_record_offset(stored, at, limit_bytes) + 1 if thinned else last.next_offset
    except Malformed as error:
        if limit_bytes is not None and isinstance(error, TooMuch):
            raise
        return stored  # a batch that nobody can open is given as it is
    if reached <= offset:
        return _marker(offset, newest)
    if reached == newest.next_offset or not at_end:
        return stored
    view = memoryview(stored)
    shown = bytearray(view[: at + last.size])
    if reached < last.next_offset:
        shortened = last._replace(last_offset_delta=reached - 1 - last.base_offset)
        shown[at:] = wire_records.fill_in_header(shown[at:], shortened)
    return shown + _marker(reached, newest)


def closed(batches: bytearray, last: int, offset: int, below: int, epoch: int) -> bytearray:
    """These batches, the last of which begins at byte `last`, with a marker that takes their reader at `offset` to
    `below`: nothing else before it is for him. Without any batch, the marker alone, with this leader epoch."""
    if below <= offset:
        return batches
    reached, latest_ms = offset, -1
    if batches:
        header = read_header(batches, last)
        try:
            reached, latest_ms = wire_records.last_record_offset(batches, last) + 1, header.max_timestamp
        except Malformed:
            return batches  # a batch that nobody can open is given as it is
        if reached >= below:
            return batches
        if reached < header.next_offset:
            shortened = header._replace(last_offset_delta=reached - 1 - header.base_offset)
            batches[last:] = wire_records.fill_in_header(batches[last:], shortened)
    first = max(reached, below - 1 - _LARGEST_DELTA)
    return batches + skip_marker(first, below - 1, epoch, latest_ms)


def _marker(offset: int, newest: BatchHeader) -> bytearray:
    """One batch from `offset` to the end of the `newest` one."""
    first = max(offset, newest.last_offset - _LARGEST_DELTA)
    return skip_marker(first, newest.last_offset, newest.leader_epoch, newest.max_timestamp)
