"""Topics that open batches: compression.type, what is opened elsewhere than on the event loop, and how much at most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log import opening
from headrace.log.opening import ON_LOOP_BYTES, Opened, Unprepared
from headrace.log.partition_log import PartitionLog
from headrace.model.topic_config import TopicConfig, topic_config
from headrace.wire import compression
from headrace.wire.batches import crc_ok, read_header, restamp_crc, walk
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from sim.disk import SimDisk
from tests.conftest import SOAKING
from tests.unit.log.batches import NOW, append, open_log, read_all

NAMES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
RECORDS = [Record(at, NOW + at, b"k%d" % at, b"v" * 500, (("h", None), ("i", b"x"))) for at in range(50)]


def sent(codec: int, producer: int = -1) -> memoryview:
    sequence = -1 if producer < 0 else 0
    epoch = -1 if producer < 0 else 3
    batch = encode_batch(RECORDS, codec=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return memoryview(batch)


@pytest.mark.parametrize("wanted", NAMES)
def test_batches_of_every_codec_are_stored_in_the_topics_codec_and_hold_the_same(wanted: str) -> None:
    log = open_log(SimDisk(), topic_config({"compression.type": wanted}, {}))
    for codec in range(5):
        log.append(sent(codec), 0, now_ms=NOW)
    data = log.read(0, 1 << 20, log.end_offset, at_least_one=True).load()
    stored = list(walk(data))
    assert [compression.NAMES[header.codec] for _, header in stored] == [wanted.replace("uncompressed", "none")] * 5
    assert all(crc_ok(data, at, header) for at, header in stored)
    assert [record.value for record in read_all(log)] == [record.value for record in RECORDS] * 5
    assert [record.headers for record in read_all(log)][-1] == RECORDS[-1].headers
    assert log.end_offset == 5 * len(RECORDS)


@pytest.mark.parametrize(("codec", "little", "much"), [("gzip", "1", "9"), ("zstd", "-1000", "19")])
def test_a_topic_says_how_hard_its_codec_tries(codec: str, little: str, much: str) -> None:
    words = b" ".join(b"%d" % (number * number) for number in range(3000))

    def size(*levels: str) -> int:
        settings = {"compression.type": codec, **{f"compression.{codec}.level": level for level in levels}}
        log = open_log(SimDisk(), topic_config(settings, {}))
        append(log, memoryview(encode_batch([Record(0, NOW, None, words, ())])))
        assert [record.value for record in read_all(log)] == [words]
        return log.size_bytes

    assert size(much) < size(little)
    assert size() == size({"gzip": "-1", "zstd": "3"}[codec])


@pytest.mark.parametrize("codec", ["lz4", "snappy", "uncompressed", "producer"])
def test_levels_of_other_codecs_change_nothing(codec: str) -> None:
    levels = {"compression.gzip.level": "9", "compression.lz4.level": "12", "compression.zstd.level": "19"}
    log = open_log(SimDisk(), topic_config({"compression.type": codec, **levels}, {}))
    log.append(sent(compression.GZIP), 0, now_ms=NOW)
    assert [record.value for record in read_all(log)] == [record.value for record in RECORDS]


def test_an_idempotent_producer_may_repeat_what_was_compressed_again() -> None:
    log = open_log(SimDisk(), TopicConfig(codec=compression.ZSTD))
    first = log.append(sent(compression.NONE, producer=7), 0, now_ms=NOW)
    again = log.append(sent(compression.NONE, producer=7), 0, now_ms=NOW)
    assert again.duplicate
    assert again.base_offset == first.base_offset
    assert log.end_offset == len(RECORDS)


def test_what_is_too_large_in_the_topics_codec_is_refused_and_nothing_is_stored() -> None:
    log = open_log(SimDisk(), TopicConfig(codec=compression.NONE, max_message_bytes=2000))
    with pytest.raises(KafkaError, match=r"max\.message\.bytes is 2000") as refused:
        log.append(sent(compression.ZSTD), 0, now_ms=NOW)
    assert refused.value.code is ErrorCode.message_too_large
    assert log.end_offset == 0


# -- what takes long --------------------------------------------------------------------------------------------------

OPENING = {
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "lz4"},
    "deduplicated": {"headrace.dedup.window.ms": "60000"},
    "both": {"headrace.dedup.window.ms": "60000", "compression.type": "snappy"},
}
MIB = 1 << 20


def with_ids(*ids: bytes | None, codec: int = compression.ZSTD, value: bytes = b"v", sequence: int = -1) -> memoryview:
    records = [
        Record(at, NOW + at, b"k%d" % at, value, () if name is None else (("headrace.id", name),))
        for at, name in enumerate(ids)
    ]
    producer, epoch = (-1, -1) if sequence < 0 else (7, 0)
    batch = encode_batch(records, codec=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return memoryview(batch)


def bomb(codec: int = compression.ZSTD, size: int = 3 * MIB) -> memoryview:
    return with_ids(b"bomb", codec=codec, value=bytes(size))


@contextmanager
def decompressed() -> Iterator[list[int]]:
    """The bytes that were asked for in each decompression, at most."""
    asked: list[int] = []
    real = compression.decompress

    def counted(codec: int, data: Any, limit_bytes: int) -> Any:
        asked.append(limit_bytes if codec else 0)
        return real(codec, data, limit_bytes)

    with patch.object(compression, "decompress", counted):
        yield asked


def step_of(log: PartitionLog, records: memoryview, prepared: Opened | None = None) -> Opened:
    """What is prepared for an append that cannot be done yet."""
    end, size = log.end_offset, log.size_bytes
    with pytest.raises(Unprepared) as stopped:
        log.append(records, 0, now_ms=NOW, prepared=prepared)
    assert (log.end_offset, log.size_bytes) == (end, size)
    return stopped.value.step(records)


@pytest.mark.parametrize("topic", OPENING)
@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.ZSTD])
def test_a_small_batch_that_opens_into_much_is_opened_elsewhere_and_once(topic: str, codec: int) -> None:
    log = open_log(SimDisk(), topic_config(OPENING[topic], {}))
    records = bomb(codec)
    assert len(records) < ON_LOOP_BYTES
    with decompressed() as on_loop, pytest.raises(Unprepared) as stopped:
        log.append(records, 0, now_ms=NOW)
    assert sum(on_loop) <= ON_LOOP_BYTES
    with decompressed() as elsewhere:
        prepared = stopped.value.step(records)
        if topic == "both" and codec != compression.SNAPPY:
            prepared = step_of(log, records, prepared)  # compressed anew, once it is known which records stay
    assert len(elsewhere) == 1
    with decompressed() as on_loop:
        assert log.append(records, 0, now_ms=NOW, prepared=prepared).last_offset == 0
    assert on_loop == []
    assert [len(record.value or b"") for record in read_all(log)] == [3 * MIB]


def test_an_lz4_batch_that_opens_into_much_is_opened_elsewhere_too() -> None:
    log = open_log(SimDisk(), TopicConfig(codec=compression.ZSTD))
    with decompressed() as on_loop, pytest.raises(Unprepared):
        log.append(bomb(compression.LZ4, 16 * MIB), 0, now_ms=NOW)
    assert sum(on_loop) <= ON_LOOP_BYTES


def test_usual_batches_are_opened_at_once_and_what_stays_closed_is_never_opened() -> None:
    usual = with_ids(*(b"id-%d" % at for at in range(100)), value=b"v" * 100)
    for name, topic in OPENING.items():
        log = open_log(SimDisk(), topic_config(topic, {}))
        assert log.append(memoryview(bytearray(usual)), 0, now_ms=NOW).last_offset == 99, name
    log = open_log(SimDisk())
    with decompressed() as on_loop:
        log.append(bomb(), 0, now_ms=NOW)
    assert on_loop == []


def test_what_is_large_and_only_looked_through_stays_on_the_loop() -> None:
    """A megabyte that is not compressed takes a millisecond at most, on this topic as on every other."""
    delayed = {"headrace.delay.enable": "true"}
    for topic in (OPENING["compacted"], delayed):
        log = open_log(SimDisk(), topic_config(topic, {}))
        log.append(bomb(compression.NONE, 900_000), 0, now_ms=NOW)
    delay = Record(0, NOW, b"", b"", (("headrace.delay-ms", b"5"),))
    many = encode_batch([delay, *(Record(at, NOW, b"", b"") for at in range(1, 40_000))])
    with pytest.raises(Unprepared):
        log.append(memoryview(many), 0, now_ms=NOW)  # each is looked at
    log = open_log(SimDisk(), topic_config(OPENING["recompressed"], {}))
    with pytest.raises(Unprepared):
        log.append(bomb(compression.NONE, 900_000), 0, now_ms=NOW)


def test_nothing_that_was_opened_is_kept_where_nobody_asks_for_it_again() -> None:
    log = open_log(SimDisk(), topic_config(OPENING["recompressed"], {}))
    prepared = step_of(log, bomb())
    assert prepared.batches == []
    assert prepared.found[0][1].codec == compression.LZ4


names = st.sampled_from([None, b"", b"a", b"b", b"c", b"d"])
some_batches = st.builds(
    lambda ids, codec, sequence, value: bytes(with_ids(*ids, codec=codec, value=value, sequence=sequence)),
    st.lists(names, min_size=1, max_size=4),
    st.integers(0, 4),
    st.integers(-1, 3),
    st.binary(max_size=20),
)


@st.composite
def garbled(draw: st.DrawFn) -> bytes:
    found = bytearray(draw(some_batches))
    at = draw(st.integers(61, len(found) - 1))
    found[at] ^= draw(st.integers(1, 255))
    restamp_crc(found, 0, read_header(found).length)
    return bytes(found)


def answer(log: PartitionLog, records: bytes) -> object:
    try:
        return append(log, memoryview(bytearray(records)))
    except KafkaError as error:
        return error.code, error.message


@given(st.sampled_from(list(OPENING)), st.lists(st.lists(some_batches | garbled(), min_size=1, max_size=3), max_size=6))
@settings(max_examples=2000 if SOAKING else 150)
def test_on_the_loop_and_elsewhere_the_same_is_answered_and_stored(topic: str, runs: list[list[bytes]]) -> None:
    here, there = (open_log(SimDisk(), topic_config(OPENING[topic], {})) for _ in range(2))
    for run in runs:
        records = b"".join(run)
        with patch.object(opening, "ON_LOOP_BYTES", 1 << 40):
            expected = answer(here, records)
        with patch.object(opening, "ON_LOOP_BYTES", 0):
            assert answer(there, records) == expected
    logs = [log.read(0, 1 << 30, log.end_offset, at_least_one=True).load() for log in (here, there)]
    assert bytes(logs[0]) == bytes(logs[1])
    assert [log.duplicates_dropped for log in (here, there)] == [here.duplicates_dropped] * 2
    assert len(here.dedup.window if here.dedup else ()) == len(there.dedup.window if there.dedup else ())


# -- what happens meanwhile -------------------------------------------------------------------------------------------


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value and record.value[:1] for record in read_all(log, 64 * MIB)]


def test_ids_that_came_while_a_batch_was_opened_or_rewritten_are_left_out() -> None:
    log = open_log(SimDisk(), topic_config(OPENING["deduplicated"], {}))
    large = with_ids(b"a", b"b", b"c", value=b"L" * MIB)
    prepared = step_of(log, large)
    append(log, with_ids(b"a"))
    prepared = step_of(log, large, prepared)  # it is written anew, without a
    append(log, with_ids(b"c"))
    prepared = step_of(log, large, prepared)  # and once more, without c
    assert log.append(large, 0, now_ms=NOW, prepared=prepared).last_offset == 4
    assert [(record.offset, (record.value or b"")[:1]) for record in read_all(log, 64 * MIB)] == [
        (0, b"v"), (1, b"v"), (3, b"L"),
    ]  # fmt: skip
    assert log.duplicates_dropped == 2


def test_a_retry_that_overtook_its_first_is_found_when_that_is_opened() -> None:
    log = open_log(SimDisk(), topic_config(OPENING["recompressed"], {}))
    large = with_ids(b"a", value=bytes(MIB), sequence=0)
    prepared = step_of(log, large)
    assert append(log, memoryview(bytearray(large))).base_offset == 0
    again = log.append(large, 0, now_ms=NOW, prepared=prepared)
    assert (again.base_offset, again.duplicate, log.end_offset) == (0, True, 1)


@pytest.mark.parametrize("settings", [{}, *OPENING.values()])
def test_what_was_prepared_for_other_settings_is_prepared_anew(settings: dict[str, str]) -> None:
    before = {"cleanup.policy": "compact,delete", "compression.type": "gzip"}
    log = open_log(SimDisk(), topic_config(before, {}))
    large = bomb()
    prepared = step_of(log, large)
    log.reconfigure(topic_config(settings, {}))
    expected = open_log(SimDisk(), topic_config(settings, {}))
    append(expected, memoryview(bytearray(large)))
    while settings and log.end_offset == 0:
        prepared = step_of(log, large, prepared)
        with suppress(Unprepared):
            log.append(large, 0, now_ms=NOW, prepared=prepared)
    if not settings:
        log.append(large, 0, now_ms=NOW, prepared=prepared)
    assert [header.attributes for _, header in walk(log.read(0, MIB, 1, at_least_one=True).load())] == [
        header.attributes for _, header in walk(expected.read(0, MIB, 1, at_least_one=True).load())
    ]


# -- how much at most -------------------------------------------------------------------------------------------------


def test_what_opens_into_too_much_is_refused_so_that_producers_send_less() -> None:
    log = open_log(SimDisk(), topic_config(OPENING["recompressed"], {}))
    two = memoryview(bytearray(bomb()) + bytearray(bomb()))
    with patch.object(opening, "MOST_OPENED_BYTES", 5 * MIB):
        append(log, bomb())
        with pytest.raises(KafkaError, match="send fewer records") as refused:
            append(log, two)
    assert refused.value.code is ErrorCode.message_too_large
    assert log.end_offset == 1


@pytest.mark.parametrize(("topic", "limit"), [("deduplicated", "MOST_SCANNED"), ("compacted", "MOST_RECORDS")])
def test_too_many_records_are_refused_so_that_producers_send_less(topic: str, limit: str) -> None:
    log = open_log(SimDisk(), topic_config(OPENING[topic], {}))
    with patch.object(opening, limit, 3):
        append(log, with_ids(b"a", b"b", b"c"))
        with pytest.raises(KafkaError, match="takes at most 3") as refused:
            append(log, with_ids(b"d", b"e", b"f", b"g"))
    assert refused.value.code is ErrorCode.message_too_large
    assert log.end_offset == 3
