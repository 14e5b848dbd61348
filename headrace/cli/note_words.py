"""What the notes of a log say (wire/notes.py), for `headrace log dump`.

The notes of a broken log are shown as they are; whether one counts, its mate decides.
"""

from typing import TYPE_CHECKING, Any

from headrace.cli.moments import describe_moment
from headrace.cli.segment_file import StoredBatch

if TYPE_CHECKING:
    from headrace.wire.notes import Note

_MOST_WORDS = 20  # of a note's records that are told one by one


def note_in(batch: StoredBatch) -> "Note | None":
    """The note that this batch is, if it is a sound one."""
    from headrace.wire.notes import read_note

    return read_note(batch.content) if batch.crc_ok else None


def note_words(note: "Note", offset: int) -> str:
    """What a note says."""
    first = note.first_id(offset)
    mates = {0: "no mates", 1: "the next batch is its mate"}.get(note.mates, f"the next {note.mates} are its mates")
    words = [f"note {note.kind.name}: {mates}"]
    if note.producer_id >= 0:
        words.append(f"in a transaction of producer {note.producer_id}")
    words += [f"{first + key} is due {describe_moment(due)}" for key, due in zip(note.ids, note.dues, strict=True)]
    released = note.kind.name == "RELEASE"
    for key, due in zip(note.changed, note.next_dues, strict=True):
        if due < 0:
            words.append(f"{key} is {'released' if released else 'cancelled'}")
        else:
            words.append(f"{key} is {'released, and due again' if released else 'moved to'} {describe_moment(due)}")
    more = len(words) - _MOST_WORDS
    return "; ".join(words[:_MOST_WORDS]) + (f"; and {more} more" if more > 0 else "")


def note_document(note: "Note", offset: int) -> dict[str, Any]:
    first = note.first_id(offset)
    return {
        "kind": note.kind.name,
        "mates": note.mates,
        "mate_crc": note.mate_crc,
        "producer_id": note.producer_id,
        "kept": [{"id": first + key, "due": due} for key, due in zip(note.ids, note.dues, strict=True)],
        "changed": [{"id": key, "next_due": due} for key, due in zip(note.changed, note.next_dues, strict=True)],
    }
