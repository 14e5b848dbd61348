"""Whether the segments of a partition's folder follow each other without a gap, and are the files that were sealed.

Called by `log dump` for folders: it tells a `SegmentChain` of each segment and batch, in order. What a folder should
have is in its `checkpoint` and its list of sealed segments (headrace/log/sealed.py); without them only gaps between two
segments are found. Invariant: a segment's file starts at the offset in its name, and ends where the next one starts.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.segment_file import Damage, StoredBatch

if TYPE_CHECKING:
    from headrace.log.sealed import Entry

_DIGITS = 20


class SegmentChain:
    def __init__(self) -> None:
        self._folder: Path | None = None
        self._segment = Path()
        self._base: int | None = None
        self._end: int | None = None  # the offset after what came so far
        self._told = False  # that this segment has batches of other offsets
        self._recovery_point = 0
        self._sealed: dict[int, Entry] = {}

    def begin(self, segment: Path) -> Iterator[tuple[Path, Damage]]:
        """Called before the batches of each segment."""
        if segment.parent != self._folder:
            yield from self.finish()
            self._enter(segment.parent)
        base = int(segment.stem) if len(segment.stem) == _DIGITS and segment.stem.isdecimal() else None
        if base is not None and self._end is not None and base > self._end:
            yield segment, Damage(0, f"offsets {self._end} to {base - 1} are missing before this segment")
        self._segment, self._base, self._told = segment, base, False
        if base is None:
            return
        self._end = base if self._end is None else max(self._end, base)
        entry = self._sealed.get(base)
        if entry is not None and not _is_sealed(segment, entry):
            yield segment, Damage(0, f"this is not the file of {entry.size} bytes that was sealed as this segment")

    def batch(self, batch: StoredBatch) -> Iterator[tuple[Path, Damage]]:
        header = batch.header
        if self._base is None:
            return
        if header.base_offset < self._base and not self._told:
            self._told = True
            yield self._segment, Damage(batch.position, f"offset {header.base_offset} is not one of this segment")
        self._end = max(self._end or 0, header.next_offset)

    def finish(self) -> Iterator[tuple[Path, Damage]]:
        """Called after the last segment."""
        if self._folder is not None and self._end is not None and self._end < self._recovery_point:
            missing = f"offsets {self._end} to {self._recovery_point - 1} are missing after this segment"
            yield self._segment, Damage(self._segment.stat().st_size, missing)

    def _enter(self, folder: Path) -> None:
        from headrace.log import checkpoint, sealed

        self._folder, self._end = folder, None
        point = checkpoint.choose(_content(folder / checkpoint.NAME))
        self._recovery_point = 0 if point is None else point.recovery_point
        self._sealed = {entry.base_offset: entry for entry in sealed.decode(_content(folder / sealed.NAME)) or ()}
        if point is not None and point.restart_at is None:
            self._end = point.start_offset


def _is_sealed(segment: Path, entry: "Entry") -> bool:
    from headrace.wire.batches import HEADER_BYTES
    from headrace.wire.checksum import crc32c

    with segment.open("rb") as file:
        return segment.stat().st_size == entry.size and crc32c(file.read(HEADER_BYTES)) == entry.mark


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
