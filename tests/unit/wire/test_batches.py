"""Batch headers: what a broker reads, checks and stamps without opening the records."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import batches, records
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import Record
from tests.unit.wire.record_strategies import runs


def batch_of(count: int = 2, **header: int) -> bytearray:
    return records.encode_batch([Record(offset, 1000 + offset, b"k", b"v") for offset in range(count)], **header)


def refused(data: bytes | bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        batches.split_produced(memoryview(data))
    return caught.value.code


def resealed(batch: bytearray, at: int, code: str, value: int) -> bytearray:
    """The batch with one field of its header changed, and a CRC that matches."""
    struct.pack_into(code, batch, at, value)
    batches.restamp_crc(batch, 0, len(batch) - batches.PREFIX_BYTES)
    return batch


@given(st.lists(runs(), max_size=4), st.integers(0, 100))
def test_walking_finds_every_whole_batch_and_stops_at_a_torn_one(parts: list[list[Record]], cut: int) -> None:
    whole = [bytes(records.encode_batch(run, base_offset=run[0].offset)) for run in parts]
    torn = bytes(batch_of())[: min(cut, len(batch_of()) - 1)]
    found = list(batches.walk(b"".join(whole) + torn))
    assert [header.size for _, header in found] == [len(batch) for batch in whole]
    assert [header.base_offset for _, header in found] == [run[0].offset for run in parts]


def test_walking_stops_at_a_senseless_length() -> None:
    good, bad = batch_of(), batch_of()
    for length in (-1, 0, 48, 2**31 - 1):
        struct.pack_into(">i", bad, 8, length)
        assert len(list(batches.walk(good + bad + good))) == 1


def test_produced_batches_are_found_with_their_places() -> None:
    first, second = batch_of(2), batch_of(5)
    found = batches.split_produced(memoryview(first + second))
    assert [(at, header.record_count) for at, header in found] == [(0, 2), (len(first), 5)]


def test_nothing_doubtful_is_taken() -> None:
    batch = batch_of()
    flipped = bytearray(batch)
    flipped[-1] ^= 1
    assert refused(flipped) is ErrorCode.corrupt_message
    assert refused(batch[:-1]) is ErrorCode.corrupt_message
    assert refused(batch + b"torn") is ErrorCode.corrupt_message
    assert refused(b"") is ErrorCode.invalid_record
    for length in (-1, 0, 48, 2**31 - 1):
        lying = bytearray(batch)
        struct.pack_into(">i", lying, 8, length)
        assert refused(lying) is ErrorCode.corrupt_message


def test_counts_and_offsets_must_fit() -> None:
    for count in (0, -1, 1, 3):
        assert refused(resealed(batch_of(2), 57, ">i", count)) is ErrorCode.invalid_record
    for last_offset_delta in (-1, 0, 2):
        assert refused(resealed(batch_of(2), 23, ">i", last_offset_delta)) is ErrorCode.invalid_record


def test_old_record_formats_and_unknown_codecs_are_refused_by_name() -> None:
    for magic in (0, 1, 3):
        assert refused(resealed(batch_of(), 16, ">b", magic)) is ErrorCode.unsupported_for_message_format
    assert refused(bytes(16) + b"\x01" + bytes(17)) is ErrorCode.unsupported_for_message_format
    for codec in (5, 6, 7):
        assert refused(resealed(batch_of(), 21, ">h", codec)) is ErrorCode.unsupported_compression_type


def test_stamping_leaves_the_crc_right() -> None:
    batch = bytearray(b"before") + batch_of(producer_id=3, producer_epoch=1, base_sequence=8)
    header = batches.read_header(batch, 6)
    batches.stamp(batch, 6, 4711, header.length, 12)
    stamped = batches.read_header(batch, 6)
    assert (stamped.base_offset, stamped.leader_epoch, stamped.next_offset) == (4711, 12, 4713)
    assert stamped._replace(base_offset=0, leader_epoch=-1) == header
    assert batches.crc_ok(batch, 6, stamped)


def test_append_time_is_stamped_with_a_new_crc() -> None:
    batch = batch_of()
    batches.stamp_append_time(batch, 0, batches.read_header(batch), 999_999)
    header = batches.read_header(batch)
    assert batches.crc_ok(batch, 0, header)
    assert header.attributes & batches.LOG_APPEND_TIME
    assert header.max_timestamp == 999_999


def test_sequences_wrap_around() -> None:
    def last_sequence(base_sequence: int) -> int:
        return batches.read_header(batch_of(3, producer_id=1, base_sequence=base_sequence)).last_sequence

    assert [last_sequence(first) for first in (-1, 0, 2**31 - 1)] == [-1, 2, 1]


def test_attributes_have_names() -> None:
    header = batches.read_header(batch_of(codec=4, attributes=batches.CONTROL | batches.TRANSACTIONAL))
    assert (header.codec, header.is_control, header.is_transactional) == (4, True, True)
