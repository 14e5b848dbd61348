"""Notes: what goes in comes out, and nothing else takes one for what it is not."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.batches import CONTROL, NOTE, read_header
from headrace.wire.end_markers import EndMarker, encode_marker, read_marker
from headrace.wire.notes import Note, NoteKind, encode_note, read_note
from headrace.wire.records import decode

LONGS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def notes(draw: st.DrawFn) -> Note:
    bodies = draw(st.lists(st.binary(max_size=20), max_size=5))
    ends = array("I")
    for body in bodies:
        ends.append((ends[-1] if ends else 0) + len(body))
    count, changed = len(bodies), draw(st.integers(0, 4))

    def longs(size: int) -> array[int]:
        return array("q", draw(st.lists(LONGS, min_size=size, max_size=size)))

    return Note(
        draw(st.sampled_from(NoteKind)), draw(st.integers(0, 9)), draw(st.integers(0, 2**32 - 1)), draw(LONGS),
        draw(LONGS), longs(count), longs(count), longs(count), ends, longs(changed), longs(changed), b"".join(bodies),
    )  # fmt: skip


@given(notes())
def test_a_note_is_read_as_it_was_written(note: Note) -> None:
    found = read_note(encode_note(note))
    assert found is not None
    for name in Note.__struct_fields__:
        assert getattr(found, name) == getattr(note, name), name
    assert b"".join(bytes(found.record(place)) for place in range(len(found.ids))) == note.records


@given(notes(), st.data())
def test_a_damaged_note_is_none_and_no_error(note: Note, data: st.DataObject) -> None:
    encoded = encode_note(note)
    place = data.draw(st.integers(61, len(encoded) - 1))
    read_note(encoded[:place])
    encoded[place] ^= 1 << data.draw(st.integers(0, 7))
    read_note(encoded)


def test_a_note_is_no_commit_to_the_broker_and_one_of_nobody_to_clients() -> None:
    encoded = encode_note(Note(NoteKind.CANCEL))
    header = read_header(encoded)
    assert header.attributes == CONTROL | NOTE
    assert (header.producer_id, header.max_timestamp) == (-1, -1)
    assert read_marker(encoded) is None
    (record,) = decode(encoded)
    (marker,) = decode(encode_marker(EndMarker(True, 0), 1, 1, 0))
    assert record.key == marker.key
    assert record.value is not None
    assert record.value.startswith(marker.value or b"?")


def test_a_marker_is_no_note() -> None:
    assert read_note(encode_marker(EndMarker(True, 0), 1, 1, 0)) is None
