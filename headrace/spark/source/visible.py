"""Selects the visible batches of a Fetch response and decompresses them: the step before columns.

Called by fetching.py with the records of one partition. Control batches are skipped. With read_committed, batches of
aborted transactions are skipped as Kafka's consumers do: the response lists (producer id, first offset) of every
aborted transaction in it; from that offset on, the producer's transactional batches are aborted, up to its next control
batch.

Invariant: a truncated batch at the end of a response is skipped, since the next fetch returns it whole; any other
damage raises Malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headrace.model.tag_filter import MATCHES, TAG_HEADER
from headrace.wire import batches
from headrace.wire.batches import HEADER_BYTES, MAGIC, BatchHeader, Buffer
from headrace.wire.columns import Section, section_of
from headrace.wire.end_markers import read_marker
from headrace.wire.errors import Malformed
from headrace.wire.records import open_batch
from headrace.wire.tags import filter_tagged


class Aborted(NamedTuple):
    """An aborted transaction."""

    producer_id: int
    first_offset: int


def whole_batches(records: memoryview) -> list[tuple[int, BatchHeader]]:
    """(position, header) of every complete batch."""
    if len(records) >= HEADER_BYTES and records[16] != MAGIC:
        raise Malformed(f"record format {records[16]}, not {MAGIC}: the records were written by a Kafka before 0.11")
    return list(batches.walk(records))


def visible_sections(
    records: memoryview,
    found: Sequence[tuple[int, BatchHeader]],
    aborted: Sequence[Aborted] | None,
    *,
    check_crcs: bool,
    keeps: Keeps | None = None,
) -> Iterator[Section]:
    """The records of every visible batch; `aborted` is None with read_uncommitted. `keeps` leaves records out."""
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
        if keeps is not None:
            opened, data = keeps(opened, data)
        yield section_of(opened, data)


Keeps = Callable[[BatchHeader, Buffer], tuple[BatchHeader, Buffer]]


def by_tags(tags: tuple[bytes, ...], match: str) -> Keeps:
    """Records with any, all or none of these tags."""

    def keeps(header: BatchHeader, section: Buffer) -> tuple[BatchHeader, Buffer]:
        kept, left, _, _, _ = filter_tagged(
            section, header.record_count, TAG_HEADER.encode(), tags, MATCHES.index(match)
        )
        return (header, section) if left is None else (header._replace(record_count=kept), left)

    return keeps
