"""Record batches come out as they went in, Kafka's own readers agree, and bad bytes are refused politely."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from headrace.wire import batches, records
from headrace.wire.errors import Malformed
from headrace.wire.records import Record
from tests.unit.wire.record_strategies import runs

CODECS = range(5)


def one(**changes: Any) -> Record:
    return Record(0, 1000, b"k", b"v", ())._replace(**changes)


@given(runs(), st.sampled_from(CODECS), st.integers(0, 10))
def test_a_batch_gives_back_its_records(run: list[Record], codec: int, before: int) -> None:
    base_offset = max(0, run[0].offset - before)
    batch = records.encode_batch(run, codec=codec, base_offset=base_offset)
    assert records.decode(batch) == run


@given(runs(), st.sampled_from(CODECS))
def test_the_header_says_what_is_inside(run: list[Record], codec: int) -> None:
    batch = records.encode_batch(
        run, codec=codec, base_offset=run[0].offset, producer_id=7, producer_epoch=2, base_sequence=5, leader_epoch=3
    )
    header = batches.read_header(batch)
    assert batches.crc_ok(batch, 0, header)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset) == (run[0].offset, run[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in run)
    assert header.record_count == len(run)
    assert (header.codec, header.leader_epoch) == (codec, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 5)


@given(runs(), st.sampled_from(CODECS))
def test_another_reader_reads_the_same(run: list[Record], codec: int) -> None:
    batch = records.encode_batch(run, codec=codec, base_offset=run[0].offset)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    read = [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in theirs]
    assert [(*fields, tuple(headers)) for *fields, headers in read] == run


@given(st.lists(runs(), max_size=4))
def test_iterating_goes_through_all_batches(parts: list[list[Record]]) -> None:
    buffer = b"".join(records.encode_batch(run, base_offset=run[0].offset) for run in parts)
    assert list(records.iterate(buffer)) == [record for run in parts for record in run]


def test_iterating_refuses_a_torn_end() -> None:
    batch = bytes(records.encode_batch([one()]))
    with pytest.raises(Malformed):
        list(records.iterate(batch + batch[:-1]))


def test_a_batch_in_the_middle_of_a_buffer_is_found() -> None:
    batch = records.encode_batch([one()], codec=4)
    assert records.decode(b"xyz" + batch + b"more", 3) == [one()]


def test_append_time_is_the_time_of_every_record() -> None:
    batch = records.encode_batch([one(timestamp=5), one(offset=1, timestamp=9)], attributes=batches.LOG_APPEND_TIME)
    batches.stamp_append_time(batch, 0, batches.read_header(batch), 77)
    assert [record.timestamp for record in records.decode(batch)] == [77, 77]
    assert records.first_at_or_after(batch, 77) == (0, 77)
    assert records.first_at_or_after(batch, 78) is None


def test_lookup_by_time_finds_the_first_record_that_is_late_enough() -> None:
    batch = records.encode_batch([one(offset=offset, timestamp=time) for offset, time in [(0, 5), (1, 9), (2, 7)]])
    assert [records.first_at_or_after(batch, time) for time in (0, 5, 6, 9)] == [(0, 5), (0, 5), (1, 9), (1, 9)]
    assert records.first_at_or_after(batch, 10) is None
    assert records.first_at_or_after(batch, 5, from_offset=2) == (2, 7)
    assert records.first_at_or_after(batch, 9, from_offset=2) is None


def test_null_keys_are_noticed() -> None:
    for key, places in ((None, [1]), (b"", [])):
        batch = records.encode_batch([one(), one(offset=1, key=key)])
        assert records.keyless(batch[batches.HEADER_BYTES :], 2) == places


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_without_records_is_empty_whatever_its_codec(codec: int) -> None:
    header = batches.read_header(records.encode_batch([one()], codec=codec))
    empty = header._replace(length=batches.HEADER_BYTES - batches.PREFIX_BYTES, record_count=0)
    assert records.decode(batches.HEADER.pack(*empty)) == []


@pytest.mark.parametrize("run", [[], [one(offset=-1)], [one(), one(offset=2**31)]])
def test_records_that_do_not_fit_into_a_batch_are_refused(run: list[Record]) -> None:
    with pytest.raises(ValueError):
        records.encode_batch(run)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_decompression_bomb_is_refused(codec: int) -> None:
    batch = records.encode_batch([one(value=bytes(3_000_000))], codec=codec)
    with pytest.raises(Malformed, match="allowed"):
        records.decode(batch, limit_bytes=2_900_000)
    assert records.decode(batch, limit_bytes=3_000_100)[0].value == bytes(3_000_000)


def test_an_unknown_codec_is_refused() -> None:
    batch = records.encode_batch([one()])
    struct.pack_into(">h", batch, 21, 5)
    with pytest.raises(Malformed, match="codec 5"):
        records.decode(batch)


@given(runs(), st.sampled_from(CODECS), st.data())
def test_garbled_batches_raise_malformed_and_nothing_else(run: list[Record], codec: int, data: st.DataObject) -> None:
    batch = records.encode_batch(run, codec=codec, base_offset=run[0].offset)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    garbled = batch[: data.draw(st.integers(len(batch) // 2, len(batch)))]
    for look in (records.decode, lambda batch: records.first_at_or_after(batch, 0)):
        try:
            look(garbled)
        except Malformed:
            pass
