"""What a share group may be handed out of stored batches."""

from __future__ import annotations

from headrace.replicas.share.acquisition import Acquired, Span
from headrace.replicas.share.reading import Aborted, SharedBatches
from headrace.wire.batches import TRANSACTIONAL
from headrace.wire.end_markers import EndMarker, encode_marker
from headrace.wire.record import Record
from headrace.wire.records import encode_batch


def batch(first: int, count: int, *, producer_id: int = -1, attributes: int = 0) -> bytes:
    records = [Record(at, 0, None, b"x", ()) for at in range(first, first + count)]
    return bytes(encode_batch(records, base_offset=first, producer_id=producer_id, attributes=attributes))


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    made = encode_marker(EndMarker(commit, 0), producer_id, 0, 0)
    made[:8] = offset.to_bytes(8, "big")
    return bytes(made)


def test_holes_and_control_batches_are_nobodys() -> None:
    data = batch(5, 3) + marker(8, 1, commit=True) + batch(12, 2)
    found = SharedBatches(data, 3, None)
    assert found.spans == [
        Span(3, 4, deliverable=False),
        Span(5, 7),
        Span(8, 8, deliverable=False),
        Span(9, 11, deliverable=False),
        Span(12, 13),
    ]
    assert found.next_offset == 14


def test_reading_begins_in_the_middle_of_a_batch() -> None:
    found = SharedBatches(batch(0, 10) + batch(10, 5), 7, None)
    assert found.spans == [Span(7, 9), Span(10, 14)]


def test_the_bytes_are_those_of_the_batches_that_were_acquired() -> None:
    batches = [batch(0, 10), batch(10, 5), batch(15, 5), batch(20, 5)]
    found = SharedBatches(b"".join(batches), 2, None)
    assert bytes(found.bytes_of([Acquired(12, 13, 1), Acquired(16, 16, 2)])) == batches[1] + batches[2]
    assert bytes(found.bytes_of([])) == b""


def test_of_aborted_transactions_nothing_is_handed_out() -> None:
    data = (
        batch(0, 2, producer_id=1, attributes=TRANSACTIONAL)
        + batch(2, 2, producer_id=2, attributes=TRANSACTIONAL)
        + marker(4, 1, commit=False)
        + batch(5, 1, producer_id=1, attributes=TRANSACTIONAL)
        + marker(6, 1, commit=True)
        + batch(7, 1, producer_id=1)
        + marker(8, 2, commit=True)
    )
    found = SharedBatches(data, 0, Aborted([(1, 0)]))
    assert [span.first for span in found.spans if span.deliverable] == [2, 5, 7]


def test_an_aborted_transaction_that_began_before_is_known() -> None:
    data = batch(10, 2, producer_id=1, attributes=TRANSACTIONAL) + marker(12, 1, commit=False) + batch(13, 1)
    found = SharedBatches(data, 10, Aborted([(1, 3)]))
    assert [span.first for span in found.spans if span.deliverable] == [13]
