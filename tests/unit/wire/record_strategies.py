"""What record tests are made of: any record, and any run of records that a batch can hold."""

from __future__ import annotations

from hypothesis import strategies as st

from headrace.wire.records import Record

blobs = st.none() | st.binary(max_size=40)
header_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
headers = st.lists(st.tuples(header_names, blobs), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**62) | st.integers(1_700_000_000_000, 1_700_000_100_000)


@st.composite
def runs(draw: st.DrawFn, min_size: int = 1, keys: st.SearchStrategy[bytes | None] = blobs) -> list[Record]:
    """Records with rising offsets, with gaps as compaction leaves them."""
    offset = draw(st.integers(0, 2**40))
    found = []
    for _ in range(draw(st.integers(min_size, 12))):
        found.append(Record(offset, draw(timestamps), draw(keys), draw(blobs), draw(headers)))
        offset += draw(st.integers(1, 3) | st.integers(1, 2**20))
    return found
