"""Rows in columns become the batches that the same records make, in the right partitions, from both twins alike."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import _arrow_encode_py as python
from headrace.wire import batches, records
from headrace.wire.arrow_encode import COMPILED, Section
from headrace.wire.partitioning import partition_for_key
from headrace.wire.record import Record
from headrace.wire.row_columns import Blobs, HeaderLists, Numbers, Rows
from tests.unit.wire.record_strategies import blobs, headers, timestamps

TWINS: list[ModuleType] = [python]
if COMPILED:
    from headrace.wire import _arrow_encode as compiled

    TWINS.append(compiled)

drawn_rows = st.lists(st.tuples(timestamps, blobs, blobs, headers, blobs), min_size=1, max_size=12)


def bitmap(present: Sequence[bool], first: int) -> bytes:
    bits = [True] * first + list(present)
    return bytes(sum(bit << at for at, bit in enumerate(bits[low : low + 8])) for low in range(0, len(bits), 8))


def blob_column(cells: Sequence[bytes | None], first: int = 0) -> Blobs:
    """The column of these cells, with other rows before its own, as a slice of an array has them."""
    whole = [b"before"] * first + list(cells)
    offsets, data = array("i", [0]), b""
    for cell in whole:
        data += cell or b""
        offsets.append(len(data))
    return Blobs(len(cells), offsets.tobytes(), data, bitmap([cell is not None for cell in cells], first), first)


def number_column(cells: Sequence[int | None], first: int = 0) -> Numbers:
    data = array("i", [7] * first + [cell or 0 for cell in cells]).tobytes()
    return Numbers(len(cells), data, bitmap([cell is not None for cell in cells], first), first)


def header_lists(drawn: Sequence[tuple[int, Any, Any, Any, Any]], first: int) -> HeaderLists:
    offsets = array("i", [0] * (first + 1))
    for _, _, _, found, _ in drawn:
        offsets.append(offsets[-1] + len(found))
    every = [header for row in drawn for header in row[3]]
    names = blob_column([name.encode() for name, _ in every], first)
    return HeaderLists(
        len(drawn), offsets.tobytes(), names, blob_column([content for _, content in every], first), first=first
    )


def rows_of(drawn: Sequence[tuple[int, Any, Any, Any, Any]], first: int = 0) -> Rows:
    return Rows(
        rows=len(drawn),
        times=array("q", [row[0] for row in drawn]).tobytes(),
        keys=blob_column([row[1] for row in drawn], first),
        values=blob_column([row[2] for row in drawn], first),
        headers=(header_lists(drawn, first), header_lists(drawn, 0)),
        marks=((b"headrace.tag", blob_column([row[4] for row in drawn], first)),),
    )


def records_of(drawn: Sequence[tuple[int, Any, Any, Any, Any]]) -> list[Record]:
    def with_tag(found: Any, tag: bytes | None) -> Any:
        return found if tag is None else (*found, ("headrace.tag", tag))

    return [Record(at, row[0], row[1], row[2], with_tag(row[3] + row[3], row[4])) for at, row in enumerate(drawn)]


def both(act: Callable[[ModuleType], Any]) -> Any:
    """What every twin answers; a refusal counts as an answer."""

    def answer(twin: ModuleType) -> Any:
        try:
            return act(twin)
        except ValueError:
            return ValueError

    answers = [answer(twin) for twin in TWINS]
    assert all(each == answers[0] for each in answers)
    return answers[0]


def appended(twin: ModuleType, rows: Rows, order: Any, start: int, stop: int, limit: int, base: int = 0) -> Any:
    section = bytearray()
    return *twin.append_rows(section, rows, order, start, stop, 0, base, limit), bytes(section)


@given(drawn_rows, st.integers(0, 9), st.integers(0, 4))
def test_a_batch_of_rows_is_the_batch_of_the_same_records(drawn: Any, first: int, codec: int) -> None:
    section = Section()
    order = array("i", range(len(drawn))).tobytes()
    assert section.add(rows_of(drawn, first), order, 0, len(drawn), 1 << 20) == len(drawn)
    batch = section.seal(codec, 7, 2, 5, transactional=True)
    assert batch == records.encode_batch(
        records_of(drawn),
        codec=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=5,
        attributes=batches.TRANSACTIONAL,
    )


@given(drawn_rows, st.integers(0, 300), st.data())
def test_both_twins_append_the_same_bytes_and_stop_at_the_same_row(drawn: Any, limit: int, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(drawn) - 1), max_size=8))
    start = data.draw(st.integers(0, len(chosen)))
    added, latest, section = both(
        lambda twin: appended(twin, rows_of(drawn), array("i", chosen).tobytes(), start, len(chosen), limit)
    )
    whole = [records_of(drawn)[row] for row in chosen[start : start + added]]
    assert added == len(chosen) - start or added >= 1
    assert not added or latest == max(record.timestamp for record in whole)
    expected = [record._replace(offset=at) for at, record in enumerate(whole)]
    assert records.codec_twin.encode_records(expected, 0, 0) == section
    assert added <= 1 or len(section) <= limit


@given(
    st.lists(st.tuples(blobs, st.none() | st.integers(-1, 5), st.none() | st.integers(0, 2)), max_size=12),
    st.integers(0, 9),
)
def test_a_row_goes_where_it_asks_to_or_where_its_key_belongs(cells: list[Any], first: int) -> None:
    keys, asked, topics = ([cell[at] for cell in cells] for at in range(3))
    counts, firsts, sticky = [3, 1, 5], [0, 3, 4], [2, 0, 4]
    columns = (blob_column(keys, first), number_column(asked, first), number_column(topics, first))
    found = both(lambda twin: twin.assign_slots(len(cells), *columns, firsts, counts, sticky))
    wanted = []
    for key, partition, topic in cells:
        if topic is None or (partition is not None and not 0 <= partition < counts[topic]):
            assert found is ValueError
            return
        if partition is None:
            partition = sticky[topic] if key is None else partition_for_key(key, counts[topic])
        wanted.append(firsts[topic] + partition)
    assert array("i", bytes(found)).tolist() == wanted


@given(st.lists(st.integers(-1, 6), max_size=30))
def test_rows_of_one_slot_stay_in_order(slots: list[int]) -> None:
    found = both(lambda twin: twin.order_by_slot(array("i", slots).tobytes(), 6))
    if found is ValueError:
        assert not all(0 <= slot < 6 for slot in slots)
        return
    order, bounds = array("i", bytes(found[0])).tolist(), found[1]
    for slot in range(6):
        assert order[bounds[slot] : bounds[slot + 1]] == [row for row, each in enumerate(slots) if each == slot]


@given(drawn_rows, st.data())
def test_columns_that_contradict_themselves_are_refused_by_both_alike(drawn: Any, data: st.DataObject) -> None:
    rows = rows_of(drawn)
    assert rows.keys is not None
    (headers, _) = rows.headers
    broken = st.lists(st.integers(-2, 200), max_size=len(drawn) + 2).map(lambda cells: array("i", cells).tobytes())
    rows = data.draw(
        st.sampled_from(
            [
                rows._replace(keys=rows.keys._replace(offsets=data.draw(broken))),
                rows._replace(headers=(headers._replace(offsets=data.draw(broken)),)),
                rows._replace(headers=(headers._replace(names=rows.keys),)),
                rows._replace(times=rows.times[: data.draw(st.integers(0, len(rows.times)))]),
                rows._replace(values=rows.keys._replace(rows=data.draw(st.integers(-1, len(drawn))))),
            ]
        )
    )
    order = data.draw(st.lists(st.integers(-1, len(drawn)), max_size=6))
    both(lambda twin: appended(twin, rows, array("i", order).tobytes(), 0, len(order), 1 << 20))


def test_a_row_longer_than_the_limit_gets_a_batch_of_its_own() -> None:
    rows = Rows(3, struct.pack("<3q", 5, 4, 6), values=blob_column([b"s", b"x" * 500, b"t"]))
    order = struct.pack("<3i", 0, 1, 2)
    first, second = Section(), Section()
    assert first.add(rows, order, 0, 3, 100) == 1
    assert second.add(rows, order, 1, 3, 100) == 1
    assert records.decode(second.seal(0)) == [Record(0, 4, None, b"x" * 500, ())]


@pytest.mark.parametrize("twin", TWINS)
def test_a_time_too_far_from_the_first_is_refused(twin: ModuleType) -> None:
    rows = Rows(1, struct.pack("<q", -(2**63)))
    with pytest.raises(ValueError, match="does not fit a batch that starts at 1"):
        twin.append_rows(bytearray(), rows, struct.pack("<i", 0), 0, 1, 0, 1, 100)
