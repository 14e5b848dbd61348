"""Records with certain headers are found, with their bytes, by both twins alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import _record_headers_py, record_headers
from headrace.wire.errors import Malformed
from headrace.wire.record import Record
from headrace.wire.records import decode_section, encode_batch, open_batch

NAMES = (b"headrace.delay-ms", b"headrace.cancel")
SOME = st.sampled_from(["headrace.delay-ms", "headrace.cancel", "headrace.id", "headrace.", "h", ""])
HEADERS = st.lists(st.tuples(SOME, st.none() | st.binary(max_size=5)), max_size=4).map(tuple)
RECORDS = st.lists(st.tuples(st.none() | st.binary(max_size=200), HEADERS), min_size=1, max_size=6)


def section(drawn: list[tuple[bytes | None, tuple[tuple[str, bytes | None], ...]]]) -> tuple[list[Record], bytes]:
    records = [Record(at, 5 + at, key, b"value", headers) for at, (key, headers) in enumerate(drawn)]
    return records, bytes(open_batch(encode_batch(records))[1])


@given(RECORDS)
def test_marked_records_are_found_with_their_bytes(
    drawn: list[tuple[bytes | None, tuple[tuple[str, bytes | None], ...]]],
) -> None:
    records, data = section(drawn)
    found = record_headers.marked_records(data, len(records), NAMES)
    assert found == _record_headers_py.marked_records(data, len(records), NAMES)
    wanted = [record for record in records if any(name.encode() in NAMES for name, _ in record.headers)]
    assert [records[place] for place, *_ in found] == wanted
    for place, start, stop, key, marks in found:
        (record,) = decode_section(data[start:stop], 1, 100, 0)
        assert record == records[place]._replace(timestamp=0)
        assert key == record.key
        assert [(NAMES[which].decode(), value) for which, value in marks] == [
            header for header in record.headers if header[0].encode() in NAMES
        ]


@given(RECORDS, st.data())
def test_the_twins_refuse_the_same_bytes(
    drawn: list[tuple[bytes | None, tuple[tuple[str, bytes | None], ...]]], data: st.DataObject
) -> None:
    records, good = section(drawn)
    place = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good[: data.draw(st.integers(place + 1, len(good)))])
    bad[place] = data.draw(st.integers(0, 255))
    answers: list[object] = []
    for twin in (record_headers, _record_headers_py):
        try:
            answers.append(twin.marked_records(bytes(bad), len(records), NAMES))
        except Malformed:
            answers.append("malformed")
    assert answers[0] == answers[1]
