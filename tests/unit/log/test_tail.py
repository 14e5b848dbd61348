"""The usual append does what the general one does, to the last byte and number; and the tail in Python is as good."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log import partition_log, tail
from headrace.log.admission import check_client_batch
from headrace.log.appended import Appended
from headrace.log.delay_orders import NAMES
from headrace.log.partition_log import PartitionLog
from headrace.log.tail import LogTail
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import LOG_APPEND_TIME, TRANSACTIONAL, read_header, restamp_crc, split_produced
from headrace.wire.compression import GZIP
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from sim.disk import SimDisk
from tests.conftest import SOAKING
from tests.unit.log.batches import NOW, batch, from_producer, open_log
from tests.unit.wire.bad_batches import GOOD, packed

MOSTLY_APPENDING = (
    "test_admission",
    "test_partition_log",
    "test_reading",
    "test_recovery",
    "test_tail",
    "test_trimming",
)
COMPILED = tail.LogTail.__module__ == "headrace.log._tail"
CONFIGS = [
    TopicConfig(),
    TopicConfig(segment_bytes=1000, index_interval_bytes=1),
    TopicConfig(segment_index_bytes=24, index_interval_bytes=1),
    TopicConfig(segment_ms=50, max_message_bytes=300),
    TopicConfig(timestamp_after_max_ms=10, timestamp_before_max_ms=1000),
    TopicConfig(log_append_time=True),
    TopicConfig(cleanup_policy=("compact",)),
    TopicConfig(dedup_window_ms=1000),
    TopicConfig(delayed=True),
]


class GeneralTail(LogTail):
    """A tail that has no way of its own."""

    def append_usual(self, records: memoryview, leader_epoch: int, now_ms: int) -> Appended | None:
        return None


def changed(records: memoryview, at: int, form: str, value: int, *, sound: bool) -> memoryview:
    """The batch with a field that says something else; `sound` if its CRC fits."""
    data = bytearray(records)
    struct.pack_into(form, data, at, value)
    if sound:
        restamp_crc(data, 0, len(data) - 12)
    return memoryview(data)


FIELDS = [
    (8, ">i"), (15, ">h"), (17, ">i"), (21, ">h"), (23, ">i"), (35, ">q"), (43, ">q"), (51, ">h"), (53, ">i"),
    (57, ">i"),
]  # fmt: skip

plain = st.builds(
    batch,
    st.integers(1, 5),
    at=st.sampled_from([NOW - 2000, NOW, NOW + 30, NOW + 7_200_000]),
    value=st.sampled_from([b"", b"v" * 40, b"v" * 200]),
    key=st.sampled_from([b"k", None]),
    attributes=st.sampled_from([0, 0, 0, LOG_APPEND_TIME, TRANSACTIONAL, 0x40]),
)
with_id = st.builds(
    lambda name: memoryview(encode_batch([Record(0, NOW, b"k", b"v", (("headrace.id", name),))])),
    st.sampled_from([b"a", b"b"]),
)
delayed = st.builds(
    lambda name, codec: memoryview(
        encode_batch([Record(0, NOW, b"k", b"v"), Record(1, NOW, b"k", b"v", ((name, b"9"),))], codec=codec)
    ),
    st.sampled_from([*(name.decode() for name in NAMES), "headrace.", "headrace.tag", "headrace"]),
    st.sampled_from([0, 0, GZIP]),
)
produced = st.builds(
    from_producer, st.integers(0, 6), st.integers(1, 3), producer=st.sampled_from([7, 8]), epoch=st.integers(0, 1)
)
wrong = st.builds(
    lambda records, field, value, sound: changed(records, *field, value, sound=sound),
    plain | produced, st.sampled_from(FIELDS),
    st.sampled_from([-1, 0, 1, 2, 5, 100, 0x100, 0x2000]), st.booleans(),
)  # fmt: skip
cut = st.builds(lambda records, size: records[:size], plain, st.integers(0, 90))
several = st.builds(lambda *parts: memoryview(b"".join(parts)), plain, produced)
appends = st.lists(
    st.tuples(plain | with_id | delayed | produced | wrong | cut | several, st.integers(0, 2), st.integers(0, 30)),
    min_size=1,
    max_size=12,
)


def outcome(log: PartitionLog, records: memoryview, epoch: int, now_ms: int) -> Any:
    try:
        return log.append(memoryview(bytearray(records)), epoch, now_ms=now_ms)
    except KafkaError as error:
        return error.code, str(error)


def state(log: PartitionLog) -> Any:
    """Everything that an append may touch."""
    segments = [
        (
            one.base_offset, one.size, one.first_append_ms, one.max_timestamp, one.index_stale, one.active,
            one._indexed_to, one._recent_floor, list(one._recent_ends), list(one._recent_positions),
            *([] if one._index is None else [one._index.offsets, one._index.positions, one._index.times]),
        )
        for one in log.segments
    ]  # fmt: skip
    with log.segments[-1].file as file:
        stored = bytes(file.pread(file.size(), 0))
    tail = log.tail
    return (
        tail.start_offset, tail.end_offset, tail.bytes_since_checkpoint, tail.changed, tail.now_ms, tail.newest,
        tail.newest_offset, tail.newest_position, log._durability._unsynced == {log}, log.epochs.entries,
        log.producers.encode(), segments, stored,
    )  # fmt: skip


@settings(max_examples=3000 if SOAKING else 250)
@given(st.sampled_from(CONFIGS), appends, st.booleans())
def test_the_usual_append_leaves_a_log_as_the_general_one_does(
    config: TopicConfig, work: list[tuple[memoryview, int, int]], followed: bool
) -> None:
    usual = open_log(SimDisk(), config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_log, "LogTail", GeneralTail)
        general = open_log(SimDisk(), config)
    now_ms, latest = NOW, 0
    for records, epoch, pause_ms in work:
        now_ms, latest = now_ms + pause_ms, max(latest, epoch)
        assert outcome(usual, records, latest, now_ms) == outcome(general, records, latest, now_ms)
        assert state(usual) == state(general)
        if followed:
            for log in (usual, general):
                log.read(
                    log.tail.newest_offset if log.tail.newest_offset >= 0 else 0,
                    5000,
                    log.end_offset,
                    at_least_one=True,
                )


@pytest.mark.skipif(not COMPILED, reason="without a compiler there is no other way than the general one")
def test_it_takes_what_nearly_all_clients_send() -> None:
    log = open_log(SimDisk())
    assert log.tail.append_usual(batch(), 0, NOW) is None  # the first of a segment, and of an epoch
    log.append(batch(), 0, now_ms=NOW)
    assert log.tail.append_usual(batch(3), 0, NOW) == Appended(1, 3, -1, 0, False, len(batch(3)))
    assert log.tail.append_usual(from_producer(0), 0, NOW) is None  # nothing is known of this producer
    log.append(from_producer(0), 0, now_ms=NOW)
    assert log.tail.append_usual(from_producer(1, 2), 0, NOW) == Appended(5, 6, -1, 0, False, len(from_producer(1, 2)))
    assert log.tail.append_usual(from_producer(1, 2), 0, NOW) is None  # it comes again
    log.reconfigure(TopicConfig(log_append_time=True))
    assert log.tail.append_usual(batch(), 0, NOW) is None


@given(st.sampled_from(CONFIGS), plain | with_id | delayed | produced | wrong | cut)
@settings(max_examples=300)
def test_it_declines_every_batch_that_admission_refuses(config: TopicConfig, records: memoryview) -> None:
    log = open_log(SimDisk(), config)
    log.append(batch(value=b""), 0, now_ms=NOW)
    try:
        for at, header in split_produced(memoryview(bytearray(records))):
            check_client_batch(records, at, header, config, NOW, False, 1 << 20)
    except KafkaError:
        assert log.tail.append_usual(memoryview(bytearray(records)), 0, NOW) is None


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig(log_append_time=True),
        TopicConfig(cleanup_policy=("compact", "delete")),
        TopicConfig(codec=1),
        TopicConfig(dedup_window_ms=1),
    ],
)
def test_it_declines_every_batch_of_a_topic_whose_batches_do_not_stay_closed(config: TopicConfig) -> None:
    assert not config.batches_stay_closed
    log = open_log(SimDisk(), config)
    log.append(batch(), 0, now_ms=NOW)
    assert log.tail.append_usual(batch(), 0, NOW) is None
    log.reconfigure(TopicConfig())
    assert (log.tail.append_usual(batch(), 0, NOW) is not None) == COMPILED


def with_header(name: str, codec: int = 0) -> memoryview:
    return memoryview(
        encode_batch([Record(0, NOW, b"k", b"v"), Record(1, NOW, b"k", b"v", ((name, b"9"),))], codec=codec)
    )


def test_a_topic_with_delays_pays_for_batches_that_have_some_or_cannot_be_seen_through() -> None:
    log = open_log(SimDisk(), TopicConfig(delayed=True))
    log.append(batch(), 0, now_ms=NOW)
    for name in ("headrace", "headrace.", "headrace.tag", "headrace.id", "other"):
        assert (log.tail.append_usual(with_header(name), 0, NOW) is not None) == COMPILED
        assert log.tail.append_usual(with_header(name, GZIP), 0, NOW) is None
    for name in NAMES:
        assert log.tail.append_usual(with_header(name.decode()), 0, NOW) is None


def test_a_count_below_every_other_does_not_fit_the_offset_above_every_other() -> None:
    log = open_log(SimDisk())
    log.append(batch(), 0, now_ms=NOW)
    largest = changed(packed(GZIP, GOOD), 23, ">i", 2**31 - 1, sound=False)
    records = changed(largest, 57, ">i", -(2**31), sound=True)
    assert log.tail.append_usual(records, 0, NOW) is None
    assert outcome(log, records, 0, NOW)[0] is ErrorCode.invalid_record
    assert log.end_offset == 1


def test_a_batch_that_was_damaged_is_refused_by_the_usual_append_too() -> None:
    log = open_log(SimDisk())
    log.append(batch(), 0, now_ms=NOW)
    damaged = changed(batch(), 17, ">i", 0, sound=False)
    assert log.tail.append_usual(damaged, 0, NOW) is None
    assert outcome(log, damaged, 0, NOW)[0] is ErrorCode.corrupt_message
    assert log.end_offset == 1


NOT_USUAL = {
    "longer than it says": changed(batch(), 8, ">i", 50, sound=True),
    "of an older format": changed(batch(), 16, ">B", 1, sound=True),
    "more records than offsets": changed(packed(GZIP, GOOD), 57, ">i", 4, sound=True),
    "too large": batch(value=b"v" * 400),
    "too late": batch(at=NOW + 11),
    "records of fewer bytes than there are": changed(batch(value=b"value"), 61, ">B", 20, sound=True),
    "another latest time than the records have": changed(batch(), 35, ">q", NOW + 1, sound=True),
    "not compressed as it says": changed(batch(), 21, ">h", 4, sound=True),
    "a gap in the sequence": from_producer(3),
    "another epoch": from_producer(1, epoch=1),
}


@pytest.mark.parametrize("records", NOT_USUAL.values(), ids=NOT_USUAL)
def test_what_is_not_usual_is_left_to_the_general_append(records: memoryview) -> None:
    log = open_log(SimDisk(), TopicConfig(max_message_bytes=300, timestamp_after_max_ms=10))
    log.append(from_producer(0), 0, now_ms=NOW)
    assert log.tail.append_usual(memoryview(bytearray(records)), 0, NOW) is None
    assert log.end_offset == 1


@pytest.mark.parametrize(
    ("at", "taken"), [(NOW - 1001, False), (NOW - 1000, True), (NOW + 998, True), (NOW + 999, False)]
)
def test_of_uncompressed_records_each_time_counts_in_the_usual_append_too(at: int, taken: bool) -> None:
    log = open_log(SimDisk(), TopicConfig(timestamp_before_max_ms=1000, timestamp_after_max_ms=1000))
    log.append(batch(), 0, now_ms=NOW)
    assert (log.tail.append_usual(batch(3, at=at), 0, NOW) is not None) == (taken and COMPILED)


def test_records_without_a_time_are_left_to_the_general_append_where_a_time_may_be_too_old() -> None:
    log = open_log(SimDisk(), TopicConfig(timestamp_before_max_ms=1000))
    log.append(batch(), 0, now_ms=NOW)
    assert log.tail.append_usual(batch(at=-1), 0, NOW) is None
    assert log.append(batch(at=-1), 0, now_ms=NOW).base_offset == 1


def test_what_was_written_last_is_kept_for_who_follows_with_its_place_in_the_file() -> None:
    log = open_log(SimDisk())
    for _ in range(3):
        log.append(batch(2), 0, now_ms=NOW)
        newest = log.read(log.end_offset - 2, 5000, log.end_offset, at_least_one=True)
        assert read_header(newest.load()).base_offset == log.end_offset - 2
        assert newest.load_cached() == newest.load()


@pytest.mark.skipif(not COMPILED, reason="the tests of the log have run on the tail in Python then")
def test_the_log_passes_its_tests_on_the_tail_in_python() -> None:
    folder, me = Path(__file__).parent, Path(__file__).name
    names = [path.name for path in folder.glob("test_*.py") if SOAKING or path.stem in MOSTLY_APPENDING]
    blocked = "import sys, pytest; sys.modules['headrace.log._tail'] = None; sys.exit(pytest.main(sys.argv[1:]))"
    # Without compiled code the usual append is the general one: there is nothing to compare.
    general_twice = f"{me}::{test_the_usual_append_leaves_a_log_as_the_general_one_does.__name__}"
    options = ["-q", "-p", "no:cacheprovider", "-x", "--no-header", "--deselect", f"tests/unit/log/{general_twice}"]
    ran = subprocess.run(
        [sys.executable, "-c", blocked, *options, *(f"tests/unit/log/{name}" for name in names)],
        cwd=folder.parents[2],
        env={name: text for name, text in os.environ.items() if name not in ("HEADRACE_SOAK", "HEADRACE_SOAK_PART")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
