"""What the batches of a log say of producers and transactions, read again: after a crash, and when the log is cut.

Called by recovery.py and trimming.py. The newest usable snapshot before the offset in question is where reading starts;
only headers and markers are looked at. The files of aborted transactions (aborted_txns.py) count up to where the scan
of recovery begins, for the scan finds the rest; if one is damaged, all are made anew from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.log import aborted_txns, producer_state
from headrace.log.aborted_txns import AbortedTxns
from headrace.log.producer_state import ProducerStates
from headrace.log.segment import Segment, Shelf, segment_path
from headrace.wire.batches import BatchHeader
from headrace.wire.end_markers import read_marker


def read_snapshot(shelf: Shelf, directory: Path, offset: int) -> ProducerStates | None:
    try:
        return producer_state.decode(shelf.disk.read_bytes(segment_path(directory, offset, ".snapshot")))
    except FileNotFoundError:
        return None


def rebuilt_producers(
    shelf: Shelf,
    segments: Sequence[Segment],
    snapshots: Sequence[int],
    below: int,
    now_ms: int,
    aborted: AbortedTxns | None = None,
) -> ProducerStates:
    """The state after all batches before `below`, from the newest usable snapshot and what lies behind it. Transactions
    that were aborted on the way are added to `aborted`."""
    start, states = -1, ProducerStates()
    for offset in sorted((offset for offset in snapshots if offset <= below), reverse=True):
        found = read_snapshot(shelf, segments[0].directory, offset)
        if found is not None:
            start, states = offset, found
            break
    for place, segment in enumerate(segments):
        following = segments[place + 1].base_offset if place + 1 < len(segments) else below
        if following <= start or segment.base_offset >= below:
            continue
        for position, header in segment.headers(0, segment.size, wait=True):
            if header.base_offset >= below:
                break
            if header.producer_id >= 0 and header.base_offset >= start:
                remember(segment, position, header, now_ms, states, aborted)
            if header.next_offset >= below:
                break  # what follows may be the rubbish of a crash
    return states


def remember(
    segment: Segment,
    position: int,
    header: BatchHeader,
    now_ms: int,
    states: ProducerStates,
    aborted: AbortedTxns | None,
) -> None:
    """What one batch in the log says of its producer and its transaction."""
    if not header.is_control:
        states.remember_stored(header, now_ms)
        return
    marker = read_marker(segment.peek(position, header.size, wait=True))
    if marker is not None:
        ended = states.remember_end(header, marker, now_ms)
        if ended is not None and aborted is not None and not marker.commit:
            aborted.add(ended)


def stored_aborted(
    shelf: Shelf, segments: Sequence[Segment], names: Sequence[str], torn_from: int
) -> AbortedTxns | None:
    """The aborted transactions as the files have them; None if one is damaged. Files of no segment go."""
    indexed = {int(name[:20]) for name in names if name.endswith(aborted_txns.SUFFIX)}
    if not indexed:
        return AbortedTxns()
    directory = segments[0].directory
    bases = [segment.base_offset for segment in segments]
    for base in indexed - set(bases):
        shelf.disk.remove(segment_path(directory, base, aborted_txns.SUFFIX))
    return aborted_txns.load(shelf.disk, directory, bases, torn_from)


def aborted_before(
    shelf: Shelf,
    segments: Sequence[Segment],
    snapshots: Sequence[int],
    scan_from: int,
    now_ms: int,
    stored: AbortedTxns | None,
) -> AbortedTxns:
    """The transactions aborted before `scan_from`, and no others in the files: a crash may have taken their markers."""
    txns = AbortedTxns() if stored is None else stored
    if stored is None:
        oldest = [offset for offset in snapshots if offset <= segments[0].base_offset]
        rebuilt_producers(shelf, segments, oldest, scan_from, now_ms, txns)
    txns.cut_tail(scan_from)
    ends = [segment.base_offset for segment in segments[1:]] + [1 << 62]
    for segment, end in zip(segments, ends, strict=True):
        disk, directory, base = shelf.disk, segment.directory, segment.base_offset
        if stored is None:
            aborted_txns.replace_file(disk, directory, base, txns.encoded(base, end))
        else:
            aborted_txns.cut_file(disk, directory, base, txns.markers_within(base, end))
    txns.saved = len(txns)
    return txns
