"""A broker that kills itself with SIGKILL at a chosen step of writing a note: `doomed.py KIND STEP`, then the
arguments of `headrace`.

KIND is of the note: `park`, `change` (a cancel or a move) or `release`. STEP says how much of [note][mate] has been
written: nothing, half of the note, the note, the note and half of the mate, or all of it, before anybody is answered.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from headrace.cli.entry import main
from headrace.wire.batches import MAGIC, Buffer, read_header
from headrace.wire.notes import NoteKind, read_note
from headrace.world.disk import RealFile

KINDS = ("park", "change", "release")
_MAGIC_AT, _HEADER_BYTES = 16, 61  # of a batch
STEPS = ("before", "in the note", "after the note", "in the mate", "after")


def kind_of(data: bytes) -> str | None:
    """Of the note that this write begins with."""
    note = read_note(data) if len(data) > _HEADER_BYTES and data[_MAGIC_AT] == MAGIC else None
    if note is None:
        return None
    if note.kind is NoteKind.RELEASE:
        return "release"
    return "change" if len(note.changed) else "park"


def written(data: bytes, step: str) -> int:
    """How many bytes are written before the end."""
    note = read_header(data).size
    mate = len(data) - note
    return (0, note // 2, note, note + mate // 2, len(data))[STEPS.index(step)]


def doom(kind: str, step: str) -> None:
    append = RealFile.append

    def last_append(file: RealFile, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        if kind_of(data) != kind:
            append(file, buffers)
            return
        append(file, (data[: written(data, step)],))
        os.kill(os.getpid(), signal.SIGKILL)

    RealFile.append = last_append  # type: ignore[method-assign]


if __name__ == "__main__":
    doom(sys.argv[1], sys.argv[2])
    sys.argv[1:] = sys.argv[3:]
    main()
