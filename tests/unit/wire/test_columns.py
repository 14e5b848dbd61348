"""Columns hold what the records hold; the compiled and the pure-Python twin agree, on good bytes and on bad ones."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.wire import _columns_py as python
from headrace.wire import batches, records
from headrace.wire.columns import COMPILED, Blobs, Column, Columns, Section, read_columns, section_of
from headrace.wire.errors import Malformed
from headrace.wire.record import Record
from tests.unit.wire.record_strategies import runs

if COMPILED:
    from headrace.wire import _columns as compiled

both_built = pytest.mark.skipif(not COMPILED, reason="there was no C compiler to build the compiled twin with")

ALL = Column.KEY | Column.VALUE | Column.OFFSET | Column.TIMESTAMP | Column.TIMESTAMP_TYPE | Column.HEADERS
INT64 = st.integers(-(2**63), 2**63 - 1)
wants = st.integers(0, int(ALL)).map(Column)
Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def section(run: Sequence[Record], **changes: Any) -> Section:
    batch = records.encode_batch(run, base_offset=run[0].offset)
    header, data = records.open_batch(batch)
    return section_of(header, data)._replace(**changes)


def strings(blobs: Blobs | None, kind: pa.DataType) -> pa.Array:
    assert blobs is not None
    count = len(blobs.ends) // 4 - 1
    validity = None if blobs.validity is None else pa.py_buffer(blobs.validity)
    array = pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(blobs.ends), pa.py_buffer(blobs.data)])
    array.validate(full=True)
    assert array.null_count == blobs.nulls
    return array


def rows(columns: Columns) -> list[Row]:
    """What Arrow makes of the buffers."""

    def numbers(buffer: bytearray | None, kind: pa.DataType) -> list[int]:
        assert buffer is not None
        return pa.Array.from_buffers(kind, columns.rows, [None, pa.py_buffer(buffer)]).to_pylist()

    pairs = pa.StructArray.from_arrays(
        [strings(columns.header_names, pa.string()), strings(columns.header_values, pa.binary())], ["key", "value"]
    )
    assert columns.header_list_ends is not None
    kind = pa.list_(pairs.type)
    lists = pa.ListArray.from_buffers(
        kind, columns.rows, [None, pa.py_buffer(columns.header_list_ends)], children=[pairs]
    )
    lists.validate(full=True)
    return list(
        zip(
            numbers(columns.offsets, pa.int64()),
            numbers(columns.timestamps, pa.int64()),
            numbers(columns.timestamp_types, pa.int32()),
            strings(columns.keys, pa.binary()).to_pylist(),
            strings(columns.values, pa.binary()).to_pylist(),
            [[(pair["key"], pair["value"]) for pair in found] for found in lists.to_pylist()],
            strict=True,
        )
    )


def expected(run: Sequence[Record]) -> list[Row]:
    return [(one.offset, micros(one.timestamp), 0, one.key, one.value, list(one.headers)) for one in run]


def micros(time_ms: int) -> int:
    return min(max(time_ms, python.EARLIEST_MS), python.LATEST_MS) * 1000


@given(st.lists(runs(), max_size=3))
def test_columns_hold_what_the_records_hold(parts: list[list[Record]]) -> None:
    read = rows(read_columns([section(run) for run in parts], ALL))
    assert read == expected([one for run in parts for one in run])


@given(runs(), st.data())
def test_a_range_of_offsets_is_cut_out_of_the_middle_of_a_batch(run: list[Record], data: st.DataObject) -> None:
    edges = st.integers(run[0].offset - 2, run[-1].offset + 2)
    first, stop = data.draw(edges), data.draw(edges)
    kept = [one for one in run if first <= one.offset < stop]
    assert rows(read_columns([section(run)], ALL, first, stop)) == expected(kept)


@given(wants)
def test_what_is_not_wanted_is_not_there(wanted: Column) -> None:
    columns = read_columns([section([Record(7, 5, b"k", b"v", (("h", b"x"),))])], wanted)
    assert columns.rows == 1
    headers = (columns.header_list_ends, columns.header_names, columns.header_values)
    for column, parts in (
        (Column.KEY, (columns.keys,)),
        (Column.VALUE, (columns.values,)),
        (Column.OFFSET, (columns.offsets,)),
        (Column.TIMESTAMP, (columns.timestamps,)),
        (Column.TIMESTAMP_TYPE, (columns.timestamp_types,)),
        (Column.HEADERS, headers),
    ):
        assert all((part is not None) == (column in wanted) for part in parts)


def test_tags_keep_records_by_any_of_their_tag_headers() -> None:
    tag = python.TAG_HEADER.decode()
    headers = [
        (),
        ((tag, b"red"),),
        ((tag, b"blue"), (tag, b"red")),
        ((tag, None),),
        (("tag", b"red"),),
        ((tag, b"re"),),
    ]
    run = [Record(offset, 0, None, b"", one) for offset, one in enumerate(headers)]

    def kept(*tags: bytes) -> list[int]:
        return [row[0] for row in rows(read_columns([section(run)], ALL, tags=tags))]

    assert kept(b"red") == [1, 2]
    assert kept(b"blue", b"re") == [2, 5]
    assert kept(b"green") == []
    assert kept() == [0, 1, 2, 3, 4, 5]
    assert read_columns([section(run)], Column.OFFSET, tags=[b"red"]).rows == 2


def test_the_brokers_time_is_the_time_of_every_record() -> None:
    run = [Record(0, 5, None, b""), Record(1, 9, None, b"")]
    batch = records.encode_batch(run)
    batches.stamp_append_time(batch, 0, batches.read_header(batch), 77)
    read = rows(read_columns([section_of(*records.open_batch(batch))], ALL))
    assert [(row[1], row[2]) for row in read] == [(77_000, 1), (77_000, 1)]


def test_times_beyond_the_calendar_are_held_at_its_ends() -> None:
    run = [Record(0, 2**62, None, b""), Record(1, -(2**62), None, b""), Record(2, -1, None, b"")]
    assert [row[1] for row in rows(read_columns([section(run)], ALL))] == [
        253402300799999000,
        -62135596800000000,
        -1000,
    ]


def test_many_headers_find_room() -> None:
    headers = tuple((f"h{place}", None if place % 3 else b"x" * place) for place in range(500))
    run = [Record(offset, 0, None, None, headers) for offset in range(3)]
    assert rows(read_columns([section(run)], ALL)) == expected(run)


@pytest.mark.parametrize("names", [(b"\xff",), (b"\xc3", b"\xa4")], ids=["no text", "text only together"])
def test_a_header_name_that_is_no_text_is_malformed(names: tuple[bytes, ...]) -> None:
    plain = section([Record(0, 0, None, None, tuple(("x", b"") for _ in names))])
    data = bytes(plain.data)
    for name in names:
        data = data.replace(b"\x02x", b"\x02" + name, 1)
    with pytest.raises(Malformed, match="UTF-8"):
        read_columns([plain._replace(data=data)], ALL)
    assert read_columns([plain._replace(data=data)], Column.VALUE).rows == 1


# --- the twins -------------------------------------------------------------------------------------------------------


def both(sections: Sequence[Section], wanted: int, first: int, stop: int, tags: Sequence[bytes]) -> None:
    """Both give the same columns, or both refuse; another exception fails the test."""

    def answer(twin: ModuleType) -> Any:
        try:
            return twin.fill(sections, wanted, first, stop, tags)
        except Malformed:
            return Malformed

    assert answer(compiled) == answer(python)


@both_built
@given(st.lists(runs(), max_size=3), wants, INT64, INT64, st.lists(st.binary(max_size=2), max_size=2))
def test_twins_fill_the_same_columns(
    parts: list[list[Record]], wanted: Column, first: int, stop: int, tags: list[bytes]
) -> None:
    both([section(run) for run in parts], wanted, first, stop, tags)
    both([section(run) for run in parts], wanted, 0, 2**63 - 1, tags)


@both_built
@given(runs(), wants, st.booleans(), st.data())
def test_twins_refuse_the_same_garbled_bytes(
    run: list[Record], wanted: Column, tagged: bool, data: st.DataObject
) -> None:
    whole = section(run)
    garbled = bytearray(whole.data)
    for _ in range(data.draw(st.integers(1, 4))):
        garbled[data.draw(st.integers(0, len(garbled) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(garbled[: data.draw(st.integers(len(garbled) // 2, len(garbled)))])
    broken = whole._replace(
        data=cut,
        record_count=data.draw(st.just(len(run)) | st.integers(-1, 20)),
        last_offset_delta=data.draw(st.just(whole.last_offset_delta) | st.integers(-1, 2**31 - 1)),
        append_time=data.draw(st.none() | INT64),
    )
    for sections in ([broken], [whole, broken], [broken, whole]):
        both(sections, wanted, 0, 2**63 - 1, [b"red"] if tagged else [])


@both_built
@given(st.binary(max_size=60), st.integers(-(2**31), 2**31 - 1), INT64, INT64, wants)
@example(b"", 0, 0, 0, ALL)
@example(b"\x00", 0, 0, 0, ALL)
@example(b"\x0c\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 1, 0, 0, ALL)
@example(b"\x0e\x00\x00\x00\x01\x01\x02\x02", 1, 0, 0, ALL)
def test_twins_agree_on_any_bytes(data: bytes, count: int, base_offset: int, base_time: int, wanted: Column) -> None:
    both([Section(data, count, base_offset, 2**31 - 1, base_time, None)], wanted, -(2**63), 2**63 - 1, [])
