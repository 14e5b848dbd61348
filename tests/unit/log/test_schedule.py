"""Delayed records in a log: parked, released, held by transactions, and what cuts, crashes and torn writes leave."""

from __future__ import annotations

import random

import pytest

from headrace.log.appended import Appended
from headrace.log.compaction import Compactor
from headrace.log.partition_log import PartitionLog
from headrace.log.release import release
from headrace.log.repark import cancelled, reparked
from headrace.log.schedule import Due
from headrace.log.visible import visible
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import NOTE, TRANSACTIONAL, read_header, walk
from headrace.wire.errors import InvalidRecords, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, append, new_shelf, open_log

CONFIG = TopicConfig(delayed=True)
HOUR_MS = 3_600_000


def record(at: int, value: bytes, delay_ms: int | None = None, **headers: str) -> Record:
    more = [("headrace." + name.replace("_", "-"), text.encode()) for name, text in headers.items()]
    if delay_ms is not None:
        more.append(("headrace.delay-ms", b"%d" % delay_ms))
    return Record(at, NOW, b"k", value, tuple(more))


def put(log: PartitionLog, *records: Record, codec: int = 0, **producer: int) -> Appended:
    batch = encode_batch([each._replace(offset=at) for at, each in enumerate(records)], codec=codec, **producer)
    return append(log, memoryview(batch), transactional=bool(producer.get("attributes")))


def delayed(log: PartitionLog, *values: bytes, delay_ms: int = 1000) -> int:
    """The id of the first."""
    return put(log, *(record(0, value, delay_ms) for value in values)).base_offset


def waiting(log: PartitionLog) -> dict[int, int]:
    return {key: due - NOW for key, due, _ in log.schedule.pending.page(0, 1000)}


def release_due(log: PartitionLog, after_ms: int, limit: int = 100) -> int:
    """What a leader does when it is so late; how many records that releases."""
    count, more = 0, True
    while more:
        dues, more = log.schedule.due(NOW + after_ms, limit, log.end_offset)
        if dues:
            records, taken = release(dues, log.bodies(dues), log.config, NOW + after_ms, NOW + after_ms)
            log.append_notes(records, 0, now_ms=NOW + after_ms)
            count += taken
            more = True
    return count


def seen(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """What a consumer gets, and that it gets to the end: (offset, value)."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 1, log.end_offset, at_least_one=True, for_consumer=True).load()
        assert data, "a consumer gets nothing, and does not get on"
        for at, header in walk(data):
            assert not header.attributes & NOTE
            if not header.is_control:
                found += [(each.offset, each.value) for each in decode(data, at)]
            offset = header.next_offset
    return found


def test_a_batch_of_both_kinds_is_split_and_offsets_are_what_the_producer_is_told() -> None:
    log = open_log(SimDisk(), CONFIG)
    appended = put(log, record(0, b"a"), record(0, b"b", 1000), record(0, b"c"), record(0, b"d", 500))
    assert (appended.base_offset, appended.last_offset, appended.end_before) == (1, 4, 0)
    assert seen(log) == [(1, b"a"), (3, b"c")]
    assert waiting(log) == {2: 1000, 4: 500}
    assert release_due(log, 499) == 0
    assert release_due(log, 2000) == 2
    assert seen(log) == [(1, b"a"), (3, b"c"), (6, b"d"), (7, b"b")]
    assert waiting(log) == {}
    assert log.schedule.released == 2


def test_a_batch_of_nothing_but_delayed_records_shows_nothing() -> None:
    log = open_log(SimDisk(), CONFIG)
    appended = put(log, record(0, b"a", 1), record(0, b"b", 2), codec=4)
    assert (appended.base_offset, appended.visible_bytes) == (1, 0)
    assert seen(log) == []


def test_a_released_record_is_what_it_was_with_other_headers() -> None:
    log = open_log(SimDisk(), CONFIG)
    mine = Record(0, NOW, b"key", None, (("a", b"1"), ("headrace.delay-ms", b"5"), ("headrace.scheduled.id", b"lie")))
    put(log, mine)
    release_due(log, 9)
    data = log.read(2, 1 << 20, log.end_offset, at_least_one=True).load()
    (_, (at, header)) = walk(data)
    (found,) = decode(data, at)
    scheduled = (("headrace.scheduled.id", b"1"), ("headrace.scheduled.for", b"%d" % (NOW + 5)))
    assert found == Record(3, NOW + 9, b"key", None, (("a", b"1"), *scheduled))
    assert (header.producer_id, header.base_sequence) == (-1, -1)


def test_a_retry_of_a_parked_batch_is_answered_and_parked_once() -> None:
    log = open_log(SimDisk(), CONFIG)
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    first = put(log, record(0, b"a", 1000), **producer)
    again = put(log, record(0, b"a", 1000), **producer)
    assert (again.duplicate, again.base_offset) == (True, first.base_offset)
    assert len(waiting(log)) == 1


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_what_a_transaction_parked_waits_for_its_end(commit: bool, restarts: bool) -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    put(log, record(0, b"a", 1), producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    if restarts:
        log.close()
        log = open_log(disk, CONFIG)
    assert release_due(log, 100) == 0
    log.append_marker(7, 1, 0, commit, 0, strict=True, now_ms=NOW)
    assert len(waiting(log)) == commit
    assert release_due(log, 100) == commit
    assert not log.schedule


def test_cancels_and_moves_change_what_waits_and_take_offsets_of_their_own() -> None:
    log = open_log(SimDisk(), CONFIG)
    first = delayed(log, b"a", b"b", b"c", b"d")
    put(log, record(0, b"", cancel=str(first)), record(0, b"", 9000, move=str(first + 1)), record(0, b"e"))
    assert waiting(log) == {first + 1: 9000, first + 2: 1000, first + 3: 1000}
    assert [value for _, value in seen(log)] == [b"e"]
    put(log, record(0, b"", cancel_key="k"))
    assert waiting(log) == {}
    assert log.schedule.cancelled == 4


def test_one_bad_order_refuses_the_batch_and_changes_nothing() -> None:
    log = open_log(SimDisk(), CONFIG)
    first = delayed(log, b"a")
    end = log.end_offset
    with pytest.raises(InvalidRecords, match="not pending") as refused:
        put(log, record(0, b"b", 1), record(0, b"", cancel=str(first)), record(0, b"", cancel=str(first)))
    assert refused.value.places == [2]
    with pytest.raises(InvalidRecords, match="outside of a transaction"):
        put(
            log, record(0, b"", cancel=str(first)), producer_id=7, producer_epoch=0, base_sequence=0,
            attributes=TRANSACTIONAL,
        )  # fmt: skip
    assert (log.end_offset, waiting(log)) == (end, {first: 1000})


def test_a_producer_may_not_write_notes() -> None:
    log = open_log(SimDisk(), CONFIG)
    for attributes in (0x40, 0x80, 0x4000):
        with pytest.raises(KafkaError, match="mean nothing"):
            put(log, record(0, b"a"), attributes=attributes)


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("codec", [None, 0, 4])
def test_the_note_names_the_mate_as_it_is_stored(stamped: bool, codec: int | None) -> None:
    disk, config = SimDisk(), TopicConfig(delayed=True, log_append_time=stamped, codec=codec)
    log = open_log(disk, config)
    put(log, record(0, b"a"), record(0, b"b" * 500, 1000), codec=1)
    assert len(waiting(log)) == 1
    log.close()
    log = open_log(disk, config)
    assert release_due(log, 1000) == 1
    assert [value for _, value in seen(log)] == [b"a", b"b" * 500]


def test_a_pair_that_is_torn_at_any_byte_says_nothing() -> None:
    source = open_log(SimDisk(), CONFIG)
    first = delayed(source, b"a")
    end = source.segments[0].size
    put(source, record(0, b"b", 500), record(0, b"c"))
    parked = source.segments[0].size
    release_due(source, 2000)
    data = source.read(0, 1 << 20, source.end_offset, at_least_one=True).load()
    for size in range(end, len(data) + 1, 7):
        disk = SimDisk()
        log = open_log(disk, CONFIG)
        log.append_as_follower(memoryview(bytearray(data[:end])))
        log.sync()
        with log.segments[-1].file as file:
            file.append((data[end:size],))
        log.abandon()
        log = open_log(disk, CONFIG)
        if size < parked:
            assert waiting(log) == {first: 1000}
        else:
            assert len(waiting(log)) == (0 if size == len(data) else 2)
        put(log, record(0, b"after"))
        release_due(log, 3000)
        assert not log.schedule
        values = [value for _, value in seen(log)]
        assert sorted(value or b"" for value in values) == ([b"a", b"after"] + ([b"b", b"c"] if size >= parked else []))


def test_a_follower_that_got_the_note_alone_has_parked_nothing_until_the_mate_comes() -> None:
    source = open_log(SimDisk(), CONFIG)
    delayed(source, b"a")
    data = bytearray(source.read(0, 1 << 20, 2, at_least_one=True).load())
    size = read_header(data).size
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    log.append_as_follower(memoryview(data)[:size])
    assert waiting(log) == {}
    log.sync(checkpoint=True)
    log.append_as_follower(memoryview(data)[size:])
    assert waiting(log) == {1: 1000}
    log.close()
    assert waiting(open_log(disk, CONFIG)) == {1: 1000}


def test_a_follower_that_is_elected_between_note_and_mate_starts_from_what_counts() -> None:
    source = open_log(SimDisk(), CONFIG)
    delayed(source, b"a")
    data = bytearray(source.read(0, 1 << 20, 2, at_least_one=True).load())
    for config in (TopicConfig(), CONFIG):
        log = open_log(SimDisk(), config)
        log.append_as_follower(memoryview(data)[: read_header(data).size])
        put(log, record(0, b"other"))
        assert waiting(log) == {}
        assert seen(log) == [(1, b"other")]


def test_what_was_cut_off_is_undone() -> None:
    log = open_log(SimDisk(), CONFIG)
    first = delayed(log, b"a", b"b")
    log.sync(checkpoint=True)
    end = log.end_offset
    put(log, record(0, b"", cancel=str(first)))
    release_due(log, 2000)
    log.sync(checkpoint=True)
    log.truncate_to(end)
    assert waiting(log) == {first: 1000, first + 1: 1000}
    assert release_due(log, 2000) == 2
    log.truncate_to(0)
    assert not log.schedule
    assert not log.schedule.due(NOW + 5000, 10, 100)[0]


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_leaves_what_the_log_has(seed: int) -> None:
    disk, choice = SimDisk(), random.Random(seed)
    log = open_log(disk, CONFIG)
    disk.sync_dir(FOLDER.parent.parent)
    disk.sync_dir(FOLDER.parent)
    first = delayed(log, b"a", b"b")
    log.sync(checkpoint=True)
    put(log, record(0, b"", cancel=str(first)))
    if choice.random() < 0.5:
        log.sync(checkpoint=choice.random() < 0.5)
    release_due(log, 2000)
    disk.crash(choice)
    log = open_log(disk, CONFIG)
    release_due(log, 3000)
    values = [value for _, value in seen(log)]
    assert values.count(b"b") == 1
    assert values.count(b"a") <= 1
    assert not log.schedule


def test_a_log_that_starts_over_has_nothing() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    delayed(log, b"a")
    log.sync(checkpoint=True)
    log.restart_at(100)
    assert not log.schedule
    put(log, record(0, b"x"))
    log.close()
    assert not open_log(disk, CONFIG).schedule


def test_the_setting_may_be_turned_off_while_records_wait() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    delayed(log, b"a")
    log.reconfigure(TopicConfig())
    put(log, record(0, b"b", 1000))
    assert release_due(log, 2000) == 1
    assert [value for _, value in seen(log)] == [b"b", b"a"]


def test_a_record_too_large_with_its_new_headers_is_released_alone() -> None:
    log = open_log(SimDisk(), TopicConfig(delayed=True, max_message_bytes=1000))
    for value in (b"x" * 850, b"y" * 850):
        delayed(log, value)
    assert release_due(log, 2000) == 2
    assert [value for _, value in seen(log)] == [b"x" * 850, b"y" * 850]


def test_notes_are_cut_out_of_what_a_consumer_gets_and_every_answer_has_something() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, record(0, b"a"), record(0, b"b", 1))
    release_due(log, 100)
    delayed(log, b"c")
    put(log, record(0, b"d"))
    delayed(log, b"e")
    data = log.read(0, 1 << 20, log.end_offset, at_least_one=True).load()
    for offset in range(log.end_offset):
        for at_end in (True, False):
            shown = bytes(visible(data, offset, at_end=at_end))
            batches = list(walk(shown))
            assert batches
            assert not any(header.is_note for _, header in batches)
            assert all(header.record_count for _, header in batches), "kafka-go panics"
            if at_end:
                assert batches[-1][1].next_offset == log.end_offset


RETAINED = TopicConfig(delayed=True, retention_ms=1000, file_delete_delay_ms=1000)


def test_retention_drops_no_segment_with_a_record_that_waits() -> None:
    disk = SimDisk()
    log = open_log(disk, RETAINED)
    put(log, record(0, b"old"))
    log.roll(NOW)
    first = delayed(log, b"a", delay_ms=HOUR_MS)
    log.roll(NOW)
    put(log, record(0, b"young"))
    log.settle(log.end_offset)
    assert log.apply_retention(NOW + 60_000) == 1
    assert log.unwanted_before == 4
    log.close()
    log = open_log(disk, RETAINED)
    assert waiting(log) == {first: HOUR_MS}
    row = log.schedule.pending.row(first)
    assert row is not None
    (part,) = log.bodies([Due(row[1], first, row[2])])
    log.append_notes(reparked(-1, [(row, part)]), 0, now_ms=NOW + 60_000)
    log.settle(log.end_offset - 1)
    assert log.apply_retention(NOW + 60_000) == 0, "what was written again is not committed"
    log.settle(log.end_offset)
    assert log.apply_retention(NOW + 60_000) == 2
    assert waiting(log) == {first: HOUR_MS}
    log.abandon()
    log = open_log(disk, RETAINED)
    assert release_due(log, HOUR_MS) == 1
    assert [value for _, value in seen(log)] == [b"a"]


def test_a_release_that_is_not_committed_keeps_what_it_released() -> None:
    log = open_log(SimDisk(), RETAINED)
    delayed(log, b"a")
    end = log.end_offset
    log.roll(NOW)
    log.settle(end)
    release_due(log, 2000)
    assert log.apply_retention(NOW + 60_000) == 0
    log.settle(log.end_offset)
    assert log.apply_retention(NOW + 60_000) >= 1


def test_the_start_of_a_log_does_not_pass_what_waits() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, record(0, b"a"))
    delayed(log, b"b")
    put(log, record(0, b"c"))
    log.advance_start(log.end_offset)
    assert log.start_offset == 1
    log.append_notes(cancelled([2]), 0, now_ms=NOW)
    log.advance_start(4)
    assert log.start_offset == 4


def test_pages_of_what_waits_are_in_the_order_of_ids() -> None:
    log = open_log(SimDisk(), CONFIG)
    first = delayed(log, b"a", b"b", b"c")
    put(log, record(0, b"d", 5))
    page = log.pending_rows(first + 1, 2)
    assert [(each.id, each.due_ms - NOW) for each in page] == [(first + 1, 1000), (first + 2, 1000)]
    assert [each.id for each in log.pending_rows(0, 100)] == [1, 2, 3, 5]
    log.append_notes(cancelled([2]), 0, now_ms=NOW)
    assert [each.id for each in log.pending_rows(2, 100)] == [3, 5]


WITH_IDS = TopicConfig(delayed=True, dedup_window_ms=60_000)


@pytest.mark.parametrize("way", ["leader", "follower", "recovered", "restarted"])
def test_the_id_of_a_delayed_record_counts_from_when_it_was_produced(way: str) -> None:
    disk = SimDisk()
    log = open_log(disk, WITH_IDS)
    put(log, record(0, b"a", 1000, id="1"), record(0, b"b", id="2"))
    assert release_due(log, 50_000) == 1
    if way == "follower":
        source, log = log, open_log(SimDisk(), WITH_IDS)
        while log.end_offset < source.end_offset:
            data = memoryview(bytearray(source.read(log.end_offset, 1, source.end_offset, at_least_one=True).load()))
            log.append_as_follower(data, NOW, log.scanned(data))
            log.sync()
    elif way == "recovered":
        log.abandon()
        log = open_log(disk, WITH_IDS)
    elif way == "restarted":
        log.close()
        log = open_log(disk, WITH_IDS)
    put(log, record(0, b"again", 1000, id="1"), record(0, b"again", id="2"), record(0, b"last", id="3"))
    assert not log.schedule
    assert [value for _, value in seen(log)] == [b"b", b"a", b"last"]
    late = encode_batch([record(0, b"new", id="1")])
    assert log.append(memoryview(late), 0, now_ms=NOW + 61_000).visible_bytes > 0, "the window has passed"


def test_the_ids_of_a_note_without_its_mate_do_not_count() -> None:
    source = open_log(SimDisk(), WITH_IDS)
    put(source, record(0, b"a", 1000, id="1"))
    data = bytearray(source.read(0, 1 << 20, 2, at_least_one=True).load())
    log = open_log(SimDisk(), WITH_IDS)
    note = memoryview(data)[: read_header(data).size]
    log.append_as_follower(note, NOW, log.scanned(note))
    put(log, record(0, b"again", id="1"))
    assert [value for _, value in seen(log)] == [b"again"]


def test_a_topic_that_is_compacted_later_loses_nothing_that_waits_and_releases_nothing_twice() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    delayed(log, b"done")
    release_due(log, 2000)
    put(log, record(0, b"k is overwritten"))
    log.roll(NOW)
    kept = delayed(log, b"waits", delay_ms=HOUR_MS)
    log.roll(NOW)
    put(log, record(0, b"newest"))
    log.roll(NOW)
    config = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0)
    log.reconfigure(config)
    log.settle(log.end_offset)
    Compactor(new_shelf(disk)).compact(log, NOW)
    assert log.cleaned_to == kept - 1
    for way in ("as it is", "closed", "scanned"):
        if way == "closed":
            log.close()
        elif way == "scanned":
            log.close()
            for name in disk.list_dir(FOLDER):
                if name.endswith(".schedule"):
                    disk.remove(FOLDER / name)
        log = log if way == "as it is" else open_log(disk, config)
        assert waiting(log) == {kept: HOUR_MS}
    assert release_due(log, HOUR_MS) == 1
    log.roll(NOW)
    log.settle(log.end_offset)
    Compactor(new_shelf(disk)).compact(log, NOW)
    assert [value for _, value in seen(log)] == [b"waits"]
    log.abandon()
    assert not open_log(disk, config).schedule
