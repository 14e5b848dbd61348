"""Compaction keeps the last record of each key, and everything that offsets, sequences and slow readers rely on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.cleaning import Decided, KeyMap, clean
from headrace.wire import batches, records
from headrace.wire.errors import Malformed
from headrace.wire.records import Record

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
ROOM = 1_000_000


def segment_of(*runs: list[Record], codec: int = 0, attributes: int = 0, producer_id: int = -1) -> bytes:
    return b"".join(
        records.encode_batch(
            run,
            codec=codec,
            base_offset=run[0].offset,
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=run[0].offset if producer_id >= 0 else -1,
        )
        for run in runs
    )


def put(offset: int, key: bytes | None, value: bytes | None = b"v", timestamp: int = NOW - 1000) -> Record:
    return Record(offset, timestamp + offset, key, value, (("trace", b"%d" % offset),))


def map_of(segment: bytes) -> KeyMap:
    key_map = KeyMap(ROOM)
    for at, _ in batches.walk(segment):
        assert key_map.add_batch(segment, at)
    return key_map


def cleaned(
    segment: bytes, key_map: KeyMap | None = None, now_ms: int = NOW, producers: dict[int, int] | None = None
) -> bytes:
    result = clean(
        segment,
        key_map or map_of(segment),
        Decided({}),
        now_ms=now_ms,
        delete_retention_ms=DAY_MS,
        producer_last_offsets=producers or {},
    )
    for at, header in batches.walk(result):
        assert batches.crc_ok(result, at, header)
    return bytes(result)


def headers_of(segment: bytes) -> list[batches.BatchHeader]:
    return [header for _, header in batches.walk(segment)]


keys = st.sampled_from([b"", b"a", b"b", b"a key of more than sixteen bytes", b"another key of more than sixteen"])
values = st.none() | st.binary(max_size=5)


@st.composite
def logs(draw: st.DrawFn) -> list[list[Record]]:
    offset, runs = 0, []
    for _ in range(draw(st.integers(1, 5))):
        run = []
        for _ in range(draw(st.integers(1, 6))):
            run.append(put(offset, draw(keys | st.none()), draw(values), NOW - draw(st.integers(0, 5000))))
            offset += 1
        runs.append(run)
    return runs


@given(logs(), st.sampled_from(range(5)))
def test_the_last_record_of_each_key_is_left_unchanged(runs: list[list[Record]], codec: int) -> None:
    segment = segment_of(*runs, codec=codec)
    result = cleaned(segment)
    last = {record.key: record for run in runs for record in run if record.key is not None}
    assert list(records.iterate(result)) == sorted(last.values())
    assert headers_of(result)[-1].next_offset == headers_of(segment)[-1].next_offset
    assert all(header.codec == codec for header in headers_of(result) if header.record_count)


@given(logs(), st.integers(0, 30))
def test_cleaning_in_two_passes_ends_like_cleaning_in_one(runs: list[list[Record]], split: int) -> None:
    segment = segment_of(*runs)
    first = KeyMap(ROOM)
    for at, header in batches.walk(segment):
        if header.base_offset < split:
            assert first.add_batch(segment, at)
    result = cleaned(cleaned(segment, first))
    assert list(records.iterate(result)) == list(records.iterate(cleaned(segment)))


@given(logs())
def test_cleaning_twice_changes_nothing_more(runs: list[list[Record]]) -> None:
    once = cleaned(segment_of(*runs))
    assert cleaned(once) == once


@given(logs())
def test_batches_keep_their_place(runs: list[list[Record]]) -> None:
    segment = segment_of(*runs, producer_id=9)
    places = {
        (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence)
        for header in headers_of(segment)
    }
    for header in headers_of(cleaned(segment)):
        assert (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence) in places


@given(logs())
def test_a_batch_says_the_latest_time_that_is_left_in_it(runs: list[list[Record]]) -> None:
    result = cleaned(segment_of(*runs))
    for at, header in batches.walk(result):
        if header.record_count:
            assert header.max_timestamp == max(record.timestamp for record in records.decode(result, at))


def test_tombstones_stay_for_the_retention_and_then_go() -> None:
    segment = segment_of([put(0, b"a"), put(1, b"b"), put(2, b"a", None)])
    first = cleaned(segment)
    (header,) = headers_of(first)
    assert header.attributes & batches.DELETE_HORIZON
    assert header.base_timestamp == NOW + DAY_MS
    assert list(records.iterate(first)) == [put(1, b"b"), put(2, b"a", None)]
    before = cleaned(first, now_ms=NOW + DAY_MS - 1)
    assert before == first
    after = cleaned(first, now_ms=NOW + DAY_MS)
    assert list(records.iterate(after)) == [put(1, b"b")]


def test_a_tombstone_beyond_the_map_does_not_begin_its_stay() -> None:
    segment = segment_of([put(0, b"a")], [put(1, b"a", None)])
    key_map = KeyMap(ROOM)
    assert key_map.add_batch(segment)
    assert cleaned(segment, key_map) == segment


def test_append_time_is_kept_when_the_horizon_is_set() -> None:
    segment = bytearray(segment_of([put(0, b"a", None), put(1, b"b")]))
    batches.stamp_append_time(segment, 0, batches.read_header(segment), NOW - 7)
    result = cleaned(bytes(segment))
    assert headers_of(result)[0].base_timestamp == NOW + DAY_MS
    assert [record.timestamp for record in records.iterate(result)] == [NOW - 7, NOW - 7]


def test_a_batch_that_lost_all_records_goes() -> None:
    segment = segment_of([put(0, b"a")], [put(1, b"a")])
    assert cleaned(segment) == segment_of([put(1, b"a")])


@pytest.mark.parametrize("codec", range(5))
def test_the_last_batch_of_a_producer_stays_as_an_empty_one(codec: int) -> None:
    mine = segment_of([put(0, b"a"), put(1, b"b")], codec=codec, producer_id=4)
    others = segment_of([put(2, b"a"), put(3, b"b")], codec=codec)
    result = cleaned(mine + others, producers={4: 1})
    empty, whole = headers_of(result)
    assert (empty.record_count, empty.codec, empty.size) == (0, 0, batches.HEADER_BYTES)
    assert (empty.producer_id, empty.base_sequence, empty.last_sequence, empty.next_offset) == (4, 0, 1, 2)
    assert whole.record_count == 2
    assert headers_of(cleaned(result, producers={4: 1})) == [empty, whole]
    assert headers_of(cleaned(result, producers={4: 10})) == [whole]


def test_the_last_batch_of_a_segment_stays_so_that_its_end_is_known() -> None:
    old, new = segment_of([put(0, b"a")], [put(1, b"a")]), segment_of([put(2, b"a")])
    (empty,) = headers_of(cleaned(old, map_of(old + new)))
    assert (empty.record_count, empty.base_offset, empty.next_offset) == (0, 1, 2)


def test_control_batches_are_kept_and_their_keys_do_not_count() -> None:
    marker = segment_of([put(0, b"\x00\x00\x00\x02")], attributes=batches.CONTROL)
    data = segment_of([put(1, b"\x00\x00\x00\x02")])
    assert cleaned(marker + data + segment_of([put(2, b"x")])) == marker + data + segment_of([put(2, b"x")])
    key_map = map_of(marker)
    assert (len(key_map), key_map.next_offset) == (0, 1)


def test_records_without_a_key_go() -> None:
    segment = segment_of([put(0, None), put(1, b"a")])
    assert list(records.iterate(cleaned(segment))) == [put(1, b"a")]


def test_a_full_map_takes_no_part_of_a_batch() -> None:
    segment = segment_of([put(0, b"a"), put(1, b"b")], [put(2, b"a"), put(3, b"c")], [put(4, b"b")])
    second, third = [at for at, _ in batches.walk(segment)][1:]
    key_map = KeyMap(400)
    assert key_map.add_batch(segment)
    assert not key_map.add_batch(segment, second)
    assert (len(key_map), key_map.next_offset) == (2, 2)
    assert key_map.is_last(b"a", 0)
    assert key_map.add_batch(segment, third)


def test_an_empty_map_takes_a_batch_of_any_size() -> None:
    assert KeyMap(0).add_batch(segment_of([put(0, b"a"), put(1, b"b")]))


def test_damage_on_the_disk_is_not_written_anew() -> None:
    segment = bytearray(segment_of([put(0, b"a"), put(1, b"a")]))
    segment[-3] ^= 1
    with pytest.raises(Malformed, match="offset 0"):
        cleaned(bytes(segment), KeyMap(ROOM))
    with pytest.raises(Malformed, match="behind"):
        cleaned(segment_of([put(0, b"a")])[:-1])


def test_a_batch_that_cannot_be_opened_is_kept() -> None:
    strange = bytearray(segment_of([put(0, b"a")]))
    strange[22] = 5  # a codec that does not exist
    batches.restamp_crc(strange, 0, len(strange) - batches.PREFIX_BYTES)
    segment = bytes(strange) + segment_of([put(1, b"a")], [put(2, b"a")])
    assert cleaned(segment) == bytes(strange) + segment_of([put(2, b"a")])
