"""What waits in a log, as readers of a view of it are given it: whole, in order, and never with a hole."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from headrace.log.partition_log import PartitionLog
from headrace.log.pending import Waiting
from headrace.log.pending_batch import pending_batch
from headrace.log.release import FOR
from headrace.log.repark import cancelled, reparked
from headrace.log.schedule import Due
from headrace.wire.batches import read_header
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, open_log
from tests.unit.log.test_schedule import CONFIG, HOUR_MS, delayed, put, record, release_due


def pages(log: PartitionLog, rows: int, max_bytes: int) -> Iterator[Record]:
    """All that waits, page by page, as a view reads it."""
    offset = 0
    while taken := log.pending_rows(offset, rows):
        made = pending_batch(log, taken, max_bytes)
        records = decode(made.records)
        assert len(records) == made.count > 0
        assert read_header(made.records).size == len(made.records)
        yield from records
        offset = records[-1].offset + 1


def park_again(log: PartitionLog, ids: list[int]) -> None:
    rows = [row for key in ids if (row := log.schedule.pending.row(key)) is not None]
    found = log.bodies([Due(due_ms, key, note) for key, due_ms, note, _ in rows], from_0=True)
    if rows:
        log.append_notes(reparked(-1, zip(rows, found, strict=True)), 0, now_ms=NOW)


def test_a_record_is_what_was_produced_and_says_when_it_is_due() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, record(0, b"plain"), Record(1, NOW - 7, None, None, (("a", None), ("headrace.delay-ms", b"9"))))
    put(log, record(0, b"cron", cron="0 8 * * *", scheduled_for="lie"))
    first, second = pages(log, 10, 1 << 20)
    assert first == Record(2, NOW - 7, None, None, (("a", None), ("headrace.delay-ms", b"9"), (FOR, b"%d" % (NOW + 9))))
    assert second[1:4] == (NOW, b"k", b"cron")
    assert [name for name, _ in second.headers] == ["headrace.cron", "headrace.scheduled-for", FOR]


def test_a_header_that_a_producer_made_up_does_not_say_when_it_is_due() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, Record(0, NOW, b"k", b"v", ((FOR, b"1"), ("headrace.delay-ms", b"5"))))
    (found,) = pages(log, 10, 1 << 20)
    assert [value for name, value in found.headers if name == FOR] == [b"%d" % (NOW + 5)]


@pytest.mark.parametrize("seed", range(6))
def test_pages_of_any_size_have_everything_that_waits_once(seed: int) -> None:
    entropy = random.Random(seed)
    log = open_log(SimDisk(), CONFIG)
    expected: dict[int, tuple[bytes, int, int]] = {}
    for turn in range(120):
        values = [b"%d.%d" % (turn, at) * entropy.choice((1, 30)) for at in range(entropy.choice((1, 1, 3, 40)))]
        sent_ms = NOW - entropy.randrange(10_000)
        records = [record(0, value, HOUR_MS)._replace(timestamp=sent_ms + at) for at, value in enumerate(values)]
        first = put(log, *records).base_offset
        expected |= {first + at: (value, NOW + HOUR_MS, sent_ms + at) for at, value in enumerate(values)}
        if turn % 5 == 0:
            put(log, record(0, b"x" * entropy.choice((1, 5000))))
        if turn % 7 == 0:
            gone = entropy.sample(sorted(expected), len(expected) // 8)
            log.append_notes(cancelled(gone), 0, now_ms=NOW)
            expected = {key: what for key, what in expected.items() if key not in gone}
        if turn % 11 == 0:
            park_again(log, sorted(entropy.sample(sorted(expected), len(expected) // 3)))
        if turn % 40 == 20:
            log.roll(NOW)
    moved = next(iter(expected))
    put(log, record(0, b"", move=str(moved), deliver_at=str(NOW + 5)))
    expected[moved] = (expected[moved][0], NOW + 5, expected[moved][2])
    for rows, max_bytes in ((1, 1 << 20), (7, 1), (50, 3000), (4000, 1 << 20)):
        found = {each.offset: each for each in pages(log, rows, max_bytes)}
        assert list(found) == sorted(expected)
        for key, (value, due_ms, sent_ms) in expected.items():
            each = found[key]
            assert (each.value, each.headers[-1], each.timestamp) == (value, (FOR, b"%d" % due_ms), sent_ms), key


def test_a_batch_has_its_bytes_and_one_record_in_any_case() -> None:
    log = open_log(SimDisk(), CONFIG)
    delayed(log, *(b"x" * 1000 for _ in range(50)))
    rows = log.pending_rows(0, 50)
    assert pending_batch(log, rows, 0).count == 1
    made = pending_batch(log, rows, 10_000)
    assert 5 < made.count < 10
    assert len(made.records) <= 10_000


def test_a_batch_ends_where_very_many_notes_were_opened() -> None:
    log = open_log(SimDisk(), CONFIG)
    for _ in range(1200):
        delayed(log, b"x")
    assert pending_batch(log, log.pending_rows(0, 4000), 1 << 20).count == 1000
    assert len(list(pages(log, 4000, 1 << 20))) == 1200


def test_ids_that_lie_far_apart_are_in_batches_of_their_own() -> None:
    log = open_log(SimDisk(), CONFIG)
    first = delayed(log, b"a", b"b")
    rows = log.pending_rows(0, 10)
    assert pending_batch(log, rows, 1 << 20).count == 2
    far = [rows[0], Waiting(first + (1 << 31), 0, rows[1].note)]
    assert pending_batch(log, far, 1 << 20).count == 1


def test_a_note_that_is_gone_ends_the_batch_or_is_an_error() -> None:
    log = open_log(SimDisk(), CONFIG)
    first = delayed(log, b"a", b"b")
    rows = log.pending_rows(0, 10)
    gone = Waiting(first + 1, 0, log.end_offset)
    assert pending_batch(log, [rows[0], gone], 1 << 20).count == 1
    with pytest.raises(OSError, match=f"no note with record {first + 1}"):
        pending_batch(log, [gone], 1 << 20)
    with pytest.raises(OSError, match="no note"):
        pending_batch(log, [Waiting(99, 0, rows[0].note)], 1 << 20)


def test_what_was_released_meanwhile_is_given_as_it_was() -> None:
    log = open_log(SimDisk(), CONFIG)
    delayed(log, b"a", b"b")
    rows = log.pending_rows(0, 10)
    assert release_due(log, HOUR_MS) == 2
    assert log.pending_rows(0, 10) == []
    assert [each.value for each in decode(pending_batch(log, rows, 1 << 20).records)] == [b"a", b"b"]


def test_a_damaged_note_is_an_error_and_no_record() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    delayed(log, b"as it was")
    path = FOLDER / "00000000000000000000.log"
    data = disk.read_bytes(path)
    file = disk.open(path)
    file.truncate(0)
    file.append((data.replace(b"as it was", b"otherwise"),))
    with pytest.raises(OSError, match="no record batch"):
        pending_batch(log, log.pending_rows(0, 10), 1 << 20)


def test_a_batch_carries_the_epoch_in_which_its_first_record_was_parked() -> None:
    log = open_log(SimDisk(), CONFIG)
    for epoch in (3, 5):
        batch = memoryview(encode_batch([record(0, b"a", HOUR_MS)]))
        log.append(batch, epoch, now_ms=NOW)
    first, second = log.pending_rows(0, 10)
    assert read_header(pending_batch(log, [first, second], 1 << 20).records).leader_epoch == 3
    assert read_header(pending_batch(log, [second], 1 << 20).records).leader_epoch == 5
