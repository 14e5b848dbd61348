"""Compaction of a segment as a transform of bytes: batches in, fewer or smaller batches out. No files, no clock.

Called by log/compaction.py, which reads segments, fills a `KeyMap` from the dirty part of the log in order, runs
`clean` over every segment below `key_map.next_offset`, and swaps the files.

What holds afterwards: every record that is left has its offset, timestamp, key, value and headers; of each key the last
record is left; a batch keeps base offset, last offset, leader epoch, producer id, epoch and sequence, and its codec.
Tombstones stay for `delete_retention_ms` after the first cleaning that saw them, so that a slow reader learns of the
deletion: that cleaning writes the end of their stay into the batch's base timestamp and sets an attribute (KIP-534).
A batch that loses all its records disappears, unless its header is still needed: the last batch of a producer carries
its sequence, the last batch of a segment carries the segment's end. Those stay as batches without records.

Records of aborted transactions go, and supersede nothing. A marker stays while there is a batch of its transaction, if
only an empty one; then it gets a horizon as tombstones do, for readers that are between the two, and goes after it. The
caller never comes with a batch of a transaction that is open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from headrace.wire import batches, records
from headrace.wire.batches import BatchHeader, Buffer
from headrace.wire.errors import Malformed

_DIGEST_BYTES = 16
_ENTRY_BYTES = 200  # of one key in memory: the dict's share, the digest, the offset


class KeyMap:
    """Where the last record of each key is, for as many keys as the memory given to it holds.

    Keys of 16 bytes and more are known by their digest; shorter ones stand for themselves.
    """

    def __init__(self, max_bytes: int) -> None:
        self._capacity = max_bytes // _ENTRY_BYTES
        self._last_offsets: dict[bytes, int] = {}
        self.next_offset = 0
        """All batches before this offset have been added; `clean` leaves those from here on alone."""

    def __len__(self) -> int:
        return len(self._last_offsets)

    def add_batch(self, batch: Buffer, at: int = 0, *, aborted: bool = False) -> bool:
        """Takes in the batch at `at`, the next one of the log; False if there is no room, and then nothing is added.

        An empty map takes any batch, so that cleaning always moves on. A batch that cannot be opened adds no keys, nor
        does one of an aborted transaction.
        """
        header = batches.read_header(batch, at)
        found: dict[bytes, int] = {}
        if not header.is_control and not aborted:
            try:
                found = {_identity(key): offset for offset, key, _ in _scan(batch, at) if key is not None}
            except Malformed:
                found = {}
        fresh = sum(identity not in self._last_offsets for identity in found)
        if self._last_offsets and len(self._last_offsets) + fresh > self._capacity:
            return False
        self._last_offsets.update(found)
        self.next_offset = header.next_offset
        return True

    def is_last(self, key: bytes, offset: int) -> bool:
        """Whether no later record of this key has been added."""
        return self._last_offsets.get(_identity(key), -1) <= offset


class Decided:
    """How the transactions of a log ended, and which of them have left something: for one run of cleaning over it, from
    its start on, in order."""

    def __init__(self, aborted: Mapping[int, Sequence[tuple[int, int]]]) -> None:
        self._aborted = aborted  # by producer id: (first offset, marker) of each, rising
        self._with_data: set[int] = set()
        self.dropped_markers: list[int] = []
        """Offsets of markers that are no longer in what `clean` returned."""

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        spans = self._aborted.get(header.producer_id, ())
        at = bisect_right(spans, (header.base_offset, 1 << 62)) - 1
        return at >= 0 and header.base_offset < spans[at][1]

    def meet_data(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._with_data.add(header.producer_id)

    def meet_marker(self, header: BatchHeader) -> bool:
        """Whether there was a batch of the transaction that this ends."""
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        return had_data


def clean(
    segment: Buffer,
    key_map: KeyMap,
    decided: Decided,
    *,
    now_ms: int,
    delete_retention_ms: int,
    producer_last_offsets: Mapping[int, int],
    ends_segment: bool = True,
) -> bytearray:
    """What is left of a run of whole batches: a segment, or a part of one, the last if `ends_segment`.

    `producer_last_offsets`: for each producer id that the partition remembers, the last offset of its last batch.
    Raises Malformed if a batch is cut short or does not match its CRC: then the disk is at fault, and rewriting would
    hide it. A batch that is sound by its CRC but cannot be opened is kept as it came.
    """
    out = bytearray()
    view = memoryview(segment)
    end = 0
    for at, header in batches.walk(segment):
        end = at + header.size
        if not batches.crc_ok(view, at, header):
            raise Malformed(f"the batch at offset {header.base_offset} does not match its CRC")
        whole = view[at:end]
        if header.base_offset >= key_map.next_offset:
            out += whole
            continue
        is_last_of_producer = producer_last_offsets.get(header.producer_id) == header.last_offset
        try:
            if header.is_note:
                left = None  # nothing in it waits any more: see PartitionLog.decided_below
            elif header.is_control:
                left = _clean_marker(whole, header, decided, now_ms, delete_retention_ms, is_last_of_producer)
            else:
                decided.meet_data(header)
                aborted = decided.is_aborted(header)
                left = None if aborted else _clean_batch(whole, header, key_map, now_ms, delete_retention_ms)
        except Malformed:
            left = whole
        if left is not None:
            out += left
        elif is_last_of_producer or (ends_segment and end == len(view)):
            out += records.emptied_batch(header)
    if end != len(view):
        raise Malformed(f"{len(view) - end} bytes behind the last whole batch of a segment")
    return out


def _clean_marker(
    batch: memoryview, header: BatchHeader, decided: Decided, now_ms: int, delete_retention_ms: int, needed: bool
) -> Buffer | None:
    """The marker, with a horizon if nothing is left of its transaction; None if it may go."""
    if decided.meet_marker(header) or needed or not header.is_transactional:
        return batch
    if not header.attributes & batches.DELETE_HORIZON and header.record_count:
        return _with_horizon(*records.open_batch(batch), now_ms + delete_retention_ms)
    if header.record_count and now_ms < header.base_timestamp:
        return batch
    decided.dropped_markers.append(header.base_offset)
    return None


def _with_horizon(header: BatchHeader, section: Buffer, horizon_ms: int) -> bytearray:
    """The batch with all its records, their own times being what they were."""
    shifted = records.filter_records(section, [True] * header.record_count, header.base_timestamp - horizon_ms)
    attributes = header.attributes | batches.DELETE_HORIZON
    return records.seal_batch(header._replace(base_timestamp=horizon_ms, attributes=attributes), shifted)


def _clean_batch(
    batch: memoryview, header: BatchHeader, key_map: KeyMap, now_ms: int, delete_retention_ms: int
) -> Buffer | None:
    """The batch with the records that stay; None if none does."""
    header, section = records.open_batch(batch)
    scanned = records.scan_keys(section, header.record_count, header.base_offset, header.last_offset_delta)
    has_horizon = bool(header.attributes & batches.DELETE_HORIZON)
    tombstones_stay = not has_horizon or now_ms < header.base_timestamp
    keep = [
        key is not None and (has_value or tombstones_stay) and key_map.is_last(key, offset)
        for offset, key, has_value in scanned
    ]
    if not any(keep):
        return None
    meets_tombstones = not has_horizon and any(
        kept and not has_value for kept, (_, _, has_value) in zip(keep, scanned, strict=True)
    )
    if all(keep) and not meets_tombstones:
        return batch
    shift = 0
    if meets_tombstones:
        horizon_ms = now_ms + delete_retention_ms
        shift = header.base_timestamp - horizon_ms  # every record's own time stays what it was
        header = header._replace(base_timestamp=horizon_ms, attributes=header.attributes | batches.DELETE_HORIZON)
    return records.filtered_batch(header, section, keep, shift)


def _scan(batch: Buffer, at: int) -> list[tuple[int, bytes | None, bool]]:
    header, section = records.open_batch(batch, at)
    return records.scan_keys(section, header.record_count, header.base_offset, header.last_offset_delta)


def _identity(key: bytes) -> bytes:
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
