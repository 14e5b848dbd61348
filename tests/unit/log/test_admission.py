"""What a client may not write into a log, by the usual append and by the general one, and what passes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from headrace.log.partition_log import PartitionLog
from headrace.model.topic_config import TopicConfig, topic_config
from headrace.wire import records
from headrace.wire.batches import HEADER_BYTES, LOG_APPEND_TIME, crc_ok, read_header, restamp_crc
from headrace.wire.errors import ErrorCode, InvalidRecords, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk
from tests.conftest import SOAKING
from tests.unit.log.batches import NOW, batch, open_log, read_all
from tests.unit.log.test_tail import COMPILED, GeneralTail
from tests.unit.wire.bad_batches import CASES, GOOD, TAKEN, Case, middle, packed, record, sealed
from tests.unit.wire.record_strategies import blobs, headers

PAGE = Path(__file__).resolve().parents[3] / "docs" / "records.md"
PLAIN = [case for case in CASES if not case.topic]


def log_with_one_record(config: TopicConfig = TopicConfig()) -> PartitionLog:
    """After its first batch a log may take the usual append."""
    log = open_log(SimDisk(), config)
    log.append(batch(), 0, now_ms=NOW)
    return log


def verdict(log: PartitionLog, produced: bytes | bytearray) -> tuple[ErrorCode, list[int]]:
    try:
        log.append(memoryview(bytearray(produced)), 0, now_ms=NOW)
    except KafkaError as error:
        return error.code, error.places if isinstance(error, InvalidRecords) else []
    return TAKEN, []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_batch_that_is_not_as_it_should_be_is_refused_with_its_place(case: Case) -> None:
    log = log_with_one_record(topic_config(case.topic, {}))
    size = log.size_bytes
    assert verdict(log, case.batch) == (case.answer, [] if case.place is None else [case.place])
    assert log.end_offset == (4 if case.answer is TAKEN else 1)
    assert (log.size_bytes > size) == (case.answer is TAKEN)


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.what)
def test_the_usual_append_takes_nothing_that_is_to_be_refused(case: Case) -> None:
    log = log_with_one_record()
    taken = log.tail.append_usual(memoryview(bytearray(case.batch)), 0, NOW)
    as_sent = case.answer is TAKEN and "latest time" not in case.what
    assert (taken is not None) == (as_sent and COMPILED)
    assert log.end_offset == (1 if taken is None else 4)


@pytest.mark.parametrize("config", [TopicConfig(), TopicConfig(log_append_time=True)])
def test_what_the_broker_writes_itself_is_not_looked_at(config: TopicConfig) -> None:
    log = log_with_one_record(config)
    log.append(memoryview(middle(record(7))), 0, now_ms=NOW, internal=True)
    assert log.end_offset == 4


def test_a_follower_takes_what_its_leader_has_even_without_records() -> None:
    log = open_log(SimDisk())
    left = records.emptied_batch(read_header(batch(3)))
    log.append_as_follower(memoryview(left), NOW)
    thinned = records.filtered_batch(read_header(batch(3)), batch(3)[HEADER_BYTES:], [False, True, False])
    struct.pack_into(">q", thinned, 0, 3)
    log.append_as_follower(memoryview(thinned), NOW)
    assert log.end_offset == 6


@pytest.mark.parametrize(
    "config", [TopicConfig(cleanup_policy=("compact",)), TopicConfig(dedup_window_ms=1000), TopicConfig(codec=4)]
)
@pytest.mark.parametrize("codec", [1, 3])
def test_where_every_batch_is_opened_the_records_in_it_are_checked(config: TopicConfig, codec: int) -> None:
    log = open_log(SimDisk(), config)
    assert verdict(log, packed(codec, record(0) + record(1, longer=4) + record(2))) == (ErrorCode.invalid_record, [1])
    late = record(0) + record(1, time=3_600_001) + record(2)
    assert verdict(log, packed(codec, late)) == (ErrorCode.invalid_timestamp, [1])
    assert log.end_offset == 0
    assert verdict(log, packed(codec, GOOD)) == (TAKEN, [])


@pytest.mark.parametrize(("base", "latest"), [(NOW, NOW + 1001), (NOW - 1001, NOW), (NOW + 1001, NOW)])
def test_compressed_records_are_dated_by_their_header_where_they_are_not_opened(base: int, latest: int) -> None:
    log = log_with_one_record(TopicConfig(timestamp_after_max_ms=1000, timestamp_before_max_ms=1000))
    produced = records.seal_batch(read_header(sealed(GOOD, codec=1, base_time=base, max_time=latest)), GOOD)
    assert log.tail.append_usual(memoryview(produced), 0, NOW) is None
    assert verdict(log, produced) == (ErrorCode.invalid_timestamp, [])
    fine = records.seal_batch(read_header(sealed(GOOD, codec=1, base_time=-1, max_time=NOW)), GOOD)
    assert verdict(log, fine) == (TAKEN, [])


@pytest.mark.parametrize("told", [-1, NOW - 1, NOW + 1, NOW * 2])
@pytest.mark.parametrize("codec", [0, 4])
def test_a_header_with_a_wrong_latest_time_is_put_right(told: int, codec: int) -> None:
    log = log_with_one_record(TopicConfig(cleanup_policy=("compact", "delete") if codec else ("delete",)))
    produced = bytearray(packed(codec, GOOD))
    struct.pack_into(">q", produced, 35, told)
    restamp_crc(produced, 0, len(produced) - 12)
    assert verdict(log, produced) == (TAKEN, [])
    stored = log.read(1, 5000, 4, at_least_one=True).load()
    assert read_header(stored).max_timestamp == NOW
    assert crc_ok(stored, 0, read_header(stored))
    assert log.segments[-1].max_timestamp == NOW
    assert log.find_time(NOW + 1, 4) is None


def test_the_broker_dates_a_batch_itself_whatever_times_it_claims() -> None:
    log = open_log(SimDisk(), TopicConfig(log_append_time=True))
    assert verdict(log, middle(record(1, time=NOW), max_time=-1)) == (TAKEN, [])
    assert [one.timestamp for one in read_all(log)] == [NOW] * 3
    assert read_header(log.read(0, 5000, 3, at_least_one=True).load()).attributes & LOG_APPEND_TIME
    assert verdict(log, middle(record(1, time=2**63 - 1)))[0] is ErrorCode.invalid_timestamp


def test_of_a_million_bad_records_a_hundred_are_named() -> None:
    log = open_log(SimDisk(), TopicConfig(cleanup_policy=("compact",)))
    produced = memoryview(encode_batch([Record(at, NOW, b"k" if at < 3 else None, b"v") for at in range(203)]))
    with pytest.raises(InvalidRecords, match="200 of the batch's records, the first at 3") as refused:
        log.append(produced, 0, now_ms=NOW)
    assert refused.value.places == list(range(3, 103))


def table() -> str:
    """The batches and their answers, as docs/records.md shows them."""

    def said(code: ErrorCode) -> str:
        return "stored" if code is TAKEN else code.name.upper()

    rows = [f"| {case.what} | {said(case.answer)} | {said(case.kafka)} |" for case in CASES]
    return "\n".join(["| batch | headrace | Apache Kafka 4.3.0 |", "|---|---|---|", *rows, ""])


def test_the_page_says_what_is_answered() -> None:
    assert PAGE.read_text().endswith(table())


sizes = st.sampled_from([0, 1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193])
filled = st.none() | sizes.map(lambda size: b"x" * size) | blobs
times = st.sampled_from([0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8193, 2**31, -(2**40)])


@st.composite
def client_runs(draw: st.DrawFn) -> list[Record]:
    """What any client may send in one batch."""
    count = draw(st.integers(1, 5) | st.sampled_from([63, 64, 65, 200]))
    few = [(NOW + draw(times), draw(filled), draw(filled), draw(headers | st.just(()))) for _ in range(min(count, 5))]
    return [Record(at, *few[at % len(few)]) for at in range(count)]


@settings(max_examples=1000 if SOAKING else 100)
@given(client_runs(), st.integers(0, 4))
def test_every_batch_that_a_client_may_send_passes(run: list[Record], codec: int) -> None:
    config = TopicConfig(timestamp_after_max_ms=2**62, max_message_bytes=1 << 30)
    log = log_with_one_record(config)
    produced = memoryview(encode_batch(run, codec=codec))
    assert (log.tail.append_usual(memoryview(bytearray(produced)), 0, NOW) is not None) == COMPILED
    log.append(produced, 0, now_ms=NOW)
    assert [one[1:] for one in read_all(log, 1 << 20)][-len(run) :] == [one[1:] for one in run]


@settings(max_examples=3000 if SOAKING else 300)
@given(client_runs(), st.data())
def test_a_batch_with_a_changed_byte_is_refused_or_can_be_read(run: list[Record], data: st.DataObject) -> None:
    """And the usual append says the same of it as the general one."""
    produced = encode_batch(run[:5])
    at = data.draw(st.integers(21, len(produced) - 1) | st.integers(21, min(90, len(produced) - 1)))
    produced[at] = data.draw(st.integers(0, 255))
    restamp_crc(produced, 0, len(produced) - 12)
    log = log_with_one_record(TopicConfig(timestamp_after_max_ms=2**62, max_message_bytes=1 << 30))
    usual = memoryview(bytearray(produced))
    taken = log.tail.append_usual(usual, 0, NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.log.partition_log.LogTail", GeneralTail)
        general = log_with_one_record(log.config)
    answer, _ = verdict(general, produced)
    if taken is not None:
        assert answer is TAKEN
        assert read_all(log, 1 << 20) == read_all(general, 1 << 20)
    if answer is TAKEN and not read_header(produced).codec:
        stored = general.read(1, 1 << 20, general.end_offset, at_least_one=True).load()
        found = decode(stored)
        assert [one.offset for one in found] == list(range(1, 1 + len(run[:5])))
        theirs = list(MemoryRecords(stored).next_batch())
        assert [(one.offset, one.key, one.value) for one in theirs] == [one[:1] + one[2:4] for one in found]
        if not read_header(stored).attributes & LOG_APPEND_TIME:
            assert max(one.timestamp for one in found) == read_header(stored).max_timestamp
