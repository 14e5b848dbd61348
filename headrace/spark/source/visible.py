"""Which of the fetched batches a reader may see, opened: the step between a Fetch response and the columns.

Called by fetching.py with the records of one partition. Control batches are never seen. With read_committed, batches of
aborted transactions are left out as Kafka's consumers do it: the response names (producer, first offset) of every
aborted transaction that it touches; from that offset on the producer's transactional batches are aborted, until a
control batch of the producer says that the transaction ended.

Invariant: a batch that is cut short at the end of a response is not read, since the next fetch brings it whole; any
other flaw raises Malformed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.wire import batches
from headrace.wire.batches import HEADER_BYTES, MAGIC, BatchHeader
from headrace.wire.columns import Section, section_of
from headrace.wire.end_markers import read_marker
from headrace.wire.errors import Malformed
from headrace.wire.records import open_batch


class Aborted(NamedTuple):
    """An aborted transaction."""

    producer_id: int
    first_offset: int


def whole_batches(records: memoryview) -> list[tuple[int, BatchHeader]]:
    """(position, header) of every batch that came whole."""
    if len(records) >= HEADER_BYTES and records[16] != MAGIC:
        raise Malformed(f"record format {records[16]}, not {MAGIC}: the records are of a Kafka before 0.11")
    return list(batches.walk(records))


def visible_sections(
    records: memoryview,
    found: Sequence[tuple[int, BatchHeader]],
    aborted: Sequence[Aborted] | None,
    *,
    check_crcs: bool,
) -> Iterator[Section]:
    """The records of every batch that may be seen; `aborted` is None where uncommitted records may be seen too."""
    pending = sorted(aborted or (), key=lambda one: one.first_offset, reverse=True)
    open_aborted: set[int] = set()
    for at, header in found:
        if check_crcs and not batches.crc_ok(records, at, header):
            raise Malformed(f"the batch at offset {header.base_offset} does not match its CRC")
        while pending and pending[-1].first_offset <= header.last_offset:
            open_aborted.add(pending.pop().producer_id)
        if header.is_control:
            marker = read_marker(records, at)
            if marker is not None and not marker.commit:
                open_aborted.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in open_aborted:
            continue
        opened, data = open_batch(records, at)
        yield section_of(opened, data)
