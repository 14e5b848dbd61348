"""The compiled and the pure-Python record codec give the same answers, to good bytes and to bad ones."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.wire import _records_py as python
from headrace.wire.batches import HEADER_BYTES, read_header
from headrace.wire.errors import BadRecord, ErrorCode, Malformed
from headrace.wire.records import COMPILED, Record
from tests.unit.wire.bad_batches import CASES, Case
from tests.unit.wire.bad_batches import record as made
from tests.unit.wire.record_strategies import runs

if COMPILED:
    from headrace.wire import _records as compiled

pytestmark = pytest.mark.skipif(not COMPILED, reason="there was no C compiler to build the compiled codec with")

NOTHING = 0  # PROT_NONE
INT64 = st.integers(-(2**63), 2**63 - 1)


def both(act: Callable[..., Any], *args: Any) -> Any:
    """What both twins answer; Malformed counts as an answer, another exception fails the test."""

    def answer(twin: ModuleType) -> Any:
        try:
            return act(twin, *args)
        except Malformed:
            return Malformed

    ours, theirs = answer(compiled), answer(python)
    assert ours == theirs
    return ours


def checked(section: bytes | memoryview, count: int, base_timestamp: int) -> Any:
    """What both twins say of what a client sent: the earliest and latest time, or the record that is wrong, and why."""

    def check(twin: ModuleType) -> Any:
        try:
            return twin.check_records(section, count, base_timestamp)
        except BadRecord as error:
            return error.place, error.why

    return both(check)


def look_through(section: bytes, count: int, base_offset: int, last_delta: int, base_timestamp: int) -> None:
    times = (count, base_offset, last_delta, base_timestamp)
    both(lambda twin: twin.decode_records(section, *times, append_time=None))
    both(lambda twin: twin.decode_records(section, *times, append_time=base_timestamp))
    both(lambda twin: twin.scan_keys(section, count, base_offset, last_delta))
    both(lambda twin: twin.last_and_latest(section, *times))
    for timestamp, from_offset in ((0, 0), (base_timestamp, base_offset), (2**63 - 1, -(2**63))):
        both(lambda twin, *bounds: twin.first_dated(section, *times, *bounds), timestamp, from_offset)
    both(lambda twin: twin.keyless(section, count))
    for earliest, latest in ((base_timestamp, 2**63 - 1), (-(2**63), 1000), (0, base_timestamp)):
        both(lambda twin, *limits: twin.times_outside(section, count, base_timestamp, *limits), earliest, latest)
    checked(section, count, base_timestamp)
    for names in ((), (b"",), (b"id", b"headrace.id"), (b"headrace.id", b"", b"id")):
        both(lambda twin, names=names: twin.scan_headers(section, count, names))


def args_of(run: list[Record]) -> tuple[int, int, int, int]:
    return len(run), run[0].offset, run[-1].offset - run[0].offset, 1000


@given(runs(min_size=0), st.data())
def test_they_write_the_same_bytes_and_read_the_same_records(run: list[Record], data: st.DataObject) -> None:
    base_offset = run[0].offset if run else 0
    last_delta = run[-1].offset - base_offset if run else 0
    section = both(lambda twin: twin.encode_records(run, base_offset, 1000))
    read = both(lambda twin: twin.decode_records(section, len(run), base_offset, last_delta, 1000, append_time=None))
    assert read == run
    assert all(type(record) is Record for record in read)
    look_through(section, len(run), base_offset, last_delta, 1000)
    names = [*{name for record in run for name, _ in record.headers}, "no header has this name"]
    for some in (names, names[:1], names[-2:]):
        found = both(lambda twin, some=some: twin.scan_headers(section, len(run), tuple(n.encode() for n in some)))
        assert found == [[dict(reversed(record.headers)).get(name) for record in run] for name in some]
    if run:
        latest = max(record.timestamp for record in run)
        assert both(lambda twin: twin.last_and_latest(section, *args_of(run))) == (run[-1].offset, latest)
        after = data.draw(st.sampled_from(run))
        dated = [(record.offset, record.timestamp) for record in run]
        first = next(
            (one for one in dated if one[0] >= after.offset and one[1] >= after.timestamp),
        )
        bounds = (after.timestamp, after.offset)
        assert both(lambda twin: twin.first_dated(section, *args_of(run), *bounds)) == first
    keep = data.draw(st.lists(st.booleans(), min_size=len(run), max_size=len(run)))
    shift = data.draw(st.sampled_from([0, -1, 1, 100_000_000_000]))
    kept = both(lambda twin: twin.filter_records(section, keep, shift))
    left = [record for record, wanted in zip(run, keep, strict=True) if wanted]
    args = (len(left), base_offset, last_delta, 1000 - shift)
    assert both(lambda twin: twin.decode_records(kept, *args, append_time=None)) == left


@given(runs(), st.data())
def test_they_refuse_the_same_garbled_bytes(run: list[Record], data: st.DataObject) -> None:
    base_offset = run[0].offset
    section = python.encode_records(run, base_offset, 1000)
    for _ in range(data.draw(st.integers(1, 4))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    garbled = bytes(section[: data.draw(st.integers(len(section) // 2, len(section)))])
    count = data.draw(st.just(len(run)) | st.integers(-1, 20))
    last_delta = data.draw(st.just(run[-1].offset - base_offset) | st.integers(-1, 2**31 - 1))
    look_through(garbled, count, base_offset, last_delta, 1000)
    shift = data.draw(INT64)
    both(lambda twin: twin.filter_records(garbled, [True] * len(run), shift))


def test_a_record_beyond_the_last_offset_of_its_batch_is_refused() -> None:
    record = Record(5, 1000, b"key", b"value")
    section = bytes(python.encode_records([record], 0, 1000))
    assert both(lambda twin: twin.decode_records(section, 1, 0, 5, 1000, append_time=None)) == [record]
    assert both(lambda twin: twin.decode_records(section, 1, 0, 4, 1000, append_time=None)) is Malformed


def test_a_length_that_leads_far_out_of_the_batch_is_refused() -> None:
    section = bytes(python.encode_records([Record(0, 1000, b"key", b"value")], 0, 1000))
    before, after = section.split(b"key")
    gigabyte = b"\x80\x80\x80\x80\x08"  # 2^30 as a zigzag varint, in the place of the key's length
    garbled = bytes([before[0] + 2 * (len(gigabyte) - 1)]) + before[1:-1] + gigabyte + b"key" + after
    assert both(lambda twin: twin.decode_records(garbled, 1, 0, 0, 1000, append_time=None)) is Malformed


@given(st.binary(max_size=60), st.integers(-(2**31), 2**31 - 1), INT64, INT64)
@example(b"\x0c\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 1, 0, 0)
@example(b"\x0c\x00\xff\xff\xff\xff\x1f\x00", 1, 0, 0)
@example(b"", 0, 0, 0)
@example(b"\x00", 0, 0, 0)
def test_they_agree_on_any_bytes(section: bytes, count: int, base_offset: int, base_timestamp: int) -> None:
    look_through(section, count, base_offset, 2**31 - 1, base_timestamp)


@given(INT64, INT64, INT64, INT64)
def test_they_agree_on_the_ends_of_the_number_line(offset: int, base: int, time: int, base_time: int) -> None:
    def encoded(twin: ModuleType) -> Any:
        try:
            return twin.encode_records([Record(offset, time, None, None)], base, base_time)
        except ValueError as error:
            return str(error)

    section = both(encoded)
    if isinstance(section, bytearray):
        look_through(bytes(section), 1, offset, 2**31 - 1, base_time)
        both(lambda twin: twin.filter_records(section, [True], base))


@given(runs())
def test_they_pass_the_same_records_of_a_client(run: list[Record]) -> None:
    sent = [record._replace(offset=place) for place, record in enumerate(run)]
    section = bytes(python.encode_records(sent, 0, 1000))
    times = [record.timestamp for record in run]
    assert checked(section, len(run), 1000) == (min(times), max(times))
    assert both(lambda twin: twin.keyless(section, len(run))) == [at for at, one in enumerate(run) if one.key is None]
    outside = [at for at, time in enumerate(times) if time > 2000 or -1 < time < 5]
    assert both(lambda twin: twin.times_outside(section, len(run), 1000, 5, 2000)) == outside


@pytest.mark.parametrize("case", [case for case in CASES if ":" not in case.what], ids=lambda case: case.what)
def test_they_refuse_the_same_records_of_a_client_in_the_same_words(case: Case) -> None:
    header = read_header(case.batch)
    answer = checked(bytes(case.batch[HEADER_BYTES:]), header.record_count, header.base_timestamp)
    if case.answer is ErrorCode.invalid_record and case.place is not None:
        assert answer[0] == case.place


@pytest.fixture(scope="module")
def before_a_wall() -> Iterator[memoryview]:
    """A page behind which nobody may read: the process dies."""
    page = mmap.PAGESIZE
    both_pages = mmap.mmap(-1, 2 * page)
    view = memoryview(both_pages)
    wall = ctypes.addressof(ctypes.c_char.from_buffer(both_pages, page))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(page), NOTHING) == 0
    yield view[:page]
    assert libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(page), mmap.PROT_READ | mmap.PROT_WRITE) == 0


def check_before(wall: memoryview, section: bytes, count: int) -> None:
    place = wall[len(wall) - len(section) :]
    place[:] = section
    checked(place, count, 1000)


@given(runs(), st.data())
@settings(max_examples=300)
def test_no_byte_behind_a_batch_is_read(before_a_wall: memoryview, run: list[Record], data: st.DataObject) -> None:
    sent = [record._replace(offset=place) for place, record in enumerate(run)]
    section = python.encode_records(sent, 0, 1000)
    for _ in range(data.draw(st.integers(0, 3))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    check_before(
        before_a_wall, bytes(section[: data.draw(st.integers(0, min(len(section), len(before_a_wall))))]), len(run)
    )


@pytest.mark.parametrize(
    "last",
    [
        made(1, value=(100, b"v" * 100)),
        made(1, time=-(2**40), key=(70, b"k" * 70), headers=(((1, b"n"), (1, b"v")),)),
        made(1, headers=(((5000, b"n"), (1, b"v")),)),
        made(1, headers=(((1, b"\xc3"), (-1, b"")),)),
        b"\x00",
    ],
)
def test_no_byte_is_read_behind_a_batch_that_is_cut_anywhere(before_a_wall: memoryview, last: bytes) -> None:
    for cut in range(len(last) + 1):
        check_before(before_a_wall, made(0) + last[:cut], 2)
