"""Both twins of the tag filter keep what a slow filter over decoded records keeps, and refuse the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.tag_filter import MATCHES, TAG_HEADER, TagFilter
from headrace.wire import _tags_py as python
from headrace.wire.errors import Malformed
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch, open_batch
from headrace.wire.tags import COMPILED, tagged

if COMPILED:
    from headrace.wire import _tags as compiled

TWINS = [python, compiled] if COMPILED else [python]
NAME = TAG_HEADER.encode()
TAGS = st.sampled_from(["a", "b", "c", "ä", ""])
HEADERS = st.tuples(st.sampled_from([TAG_HEADER, "other", "headrace.tags"]), st.none() | TAGS.map(str.encode))
RUNS = st.lists(st.tuples(st.integers(0, 99), st.lists(HEADERS, max_size=4).map(tuple)), min_size=1, max_size=30)


def run_of(drawn: Sequence[tuple[int, tuple[tuple[str, bytes | None], ...]]]) -> list[Record]:
    return [Record(5 + at, time, None, b"v", headers) for at, (time, headers) in enumerate(drawn)]


def tags_of(record: Record) -> list[str]:
    return [value.decode() for name, value in record.headers if name == TAG_HEADER and value is not None]


@given(RUNS, st.sampled_from(MATCHES), st.sets(st.sampled_from(["a", "b", "c", "ä"]), min_size=1).map(sorted))
def test_twins_keep_what_a_slow_filter_keeps(
    drawn: list[tuple[int, tuple[tuple[str, bytes | None], ...]]], match: str, wanted: list[str]
) -> None:
    records, filter_ = run_of(drawn), TagFilter(tuple(wanted), match)
    batch = encode_batch(records, base_offset=5)
    _, section = open_batch(batch)
    expected = [record for record in records if filter_.accepts(tags_of(record))]
    seen = {tag for record in records for tag in tags_of(record)}
    for twin in TWINS:
        kept, left, latest, tags, untagged = twin.filter_tagged(
            section, len(records), NAME, tuple(tag.encode() for tag in wanted), MATCHES.index(match)
        )
        assert kept == len(expected)
        assert (left is None) == (kept == len(records))
        assert set(tags) == {tag.encode() for tag in seen}
        assert untagged == any(not tags_of(record) for record in records)
        if kept:
            assert latest == max(record.timestamp for record in expected) - records[0].timestamp
    found = tagged(batch, 0, NAME, tuple(tag.encode() for tag in wanted), MATCHES.index(match))
    if found.batch is not None:
        assert decode(found.batch) == expected


@pytest.mark.parametrize("twin", TWINS)
def test_too_many_tags_to_be_told_are_still_filtered_by(twin: object) -> None:
    records = [Record(at, 0, None, b"", ((TAG_HEADER, b"t%d" % at),)) for at in range(200)]
    _, section = open_batch(encode_batch(records))
    kept, _, _, tags, _ = twin.filter_tagged(section, 200, NAME, (b"t199", b"t3"), 0)  # type: ignore[attr-defined]
    assert (kept, tags) == (2, None)
    with pytest.raises(ValueError, match="at most 64"):
        twin.filter_tagged(section, 200, NAME, tuple(b"%d" % n for n in range(65)), 0)  # type: ignore[attr-defined]


@given(st.data())
def test_twins_refuse_the_same_bytes(data: st.DataObject) -> None:
    records = [Record(at, at, b"k", b"v", ((TAG_HEADER, b"a"), ("x", None))) for at in range(3)]
    section = bytearray(open_batch(encode_batch(records))[1])
    section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    answers = []
    for twin in TWINS:
        try:
            kept, left, latest, tags, untagged = twin.filter_tagged(section, 3, NAME, (b"a",), 0)
            answers.append((kept, None if left is None else bytes(left), latest, sorted(tags), untagged))
        except Malformed:
            answers.append(Malformed)
    assert all(answer == answers[0] for answer in answers)
