"""The manifest of a lake: numbered commits that list its files and the offsets in them.

Pure: bytes to state and back; lake.py reads and writes the files. A commit adds files, removes files that a compaction
has replaced, or both. The sum of all commits is the lake: a file that no commit names is not part of it. Invariant: no
offset of a partition is in two files of the sum, because an append only adds rows after its end (`Contents.ends`), and
a compaction removes the files that it rewrites.

Format: `manifest/<number, 20 digits>.json` is one commit; `manifest/<number>.all.json` is the sum up to that number,
so that a reader need not read them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from headrace.model.failure import Failure

FORMAT = 1
COMMITS_PER_SUM = 50

T = TypeVar("T", "Commit", "Contents")


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of one partition in one file: offsets from `start` up to, not including, `end`."""

    partition: int
    start: int
    end: int
    rows: int  # fewer than end - start where control batches or log compaction leave gaps


class LakeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One Parquet file: rows of one topic with timestamps in one hour."""

    name: str
    topic: str
    hour: str
    rows: int
    size_bytes: int
    first_ms: int
    last_ms: int
    spans: tuple[Span, ...]

    def span(self, partition: int) -> Span | None:
        return next((span for span in self.spans if span.partition == partition), None)


class Commit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int
    written_ms: int
    run: str  # the query and batch, or the compaction, that wrote it; informational
    added: tuple[LakeFile, ...] = ()
    removed: tuple[LakeFile, ...] = ()
    format: int = FORMAT


class Contents(msgspec.Struct, forbid_unknown_fields=True):
    """The sum of all commits up to a number."""

    number: int = 0
    files: dict[str, LakeFile] = {}
    removed: dict[str, int] = {}  # when a compaction replaced it; kept for a while for readers that started before
    format: int = FORMAT

    def apply(self, commit: Commit) -> None:
        if commit.number != self.number + 1:
            raise Failure(
                f"the lake's manifest has commit {commit.number} after {self.number}: a file in its manifest folder "
                "is missing; restore it"
            )
        self.number = commit.number
        for file in commit.removed:
            del self.files[file.name]
            self.removed[file.name] = commit.written_ms
        for file in commit.added:
            self.files[file.name] = file

    def ends(self) -> dict[tuple[str, int], int]:
        """The offset after the last one of each partition in the lake."""
        ends: dict[tuple[str, int], int] = {}
        for file in self.files.values():
            for span in file.spans:
                key = file.topic, span.partition
                ends[key] = max(ends.get(key, 0), span.end)
        return ends

    def starts(self) -> dict[tuple[str, int], int]:
        """The first offset of each partition in the lake."""
        starts: dict[tuple[str, int], int] = {}
        for file in self.files.values():
            for span in file.spans:
                key = file.topic, span.partition
                starts[key] = min(starts.get(key, span.start), span.start)
        return starts

    def topics(self) -> list[str]:
        return sorted({file.topic for file in self.files.values()})

    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    def forget(self, names: Iterable[str]) -> None:
        """Drop replaced files that have been deleted."""
        for name in names:
            self.removed.pop(name, None)


def commit_name(number: int) -> str:
    return f"{number:020}.json"


def sum_name(number: int) -> str:
    return f"{number:020}.all.json"


def number_of(name: str) -> int | None:
    """The number in the name of a commit or a sum; None for a file that is neither."""
    digits, _, ending = name.partition(".")
    return int(digits) if len(digits) == 20 and digits.isdecimal() and ending in ("json", "all.json") else None


def is_sum(name: str) -> bool:
    return name.endswith(".all.json")


def decode_commit(data: bytes, where: str) -> Commit:
    return _decode(data, where, Commit)


def decode_sum(data: bytes, where: str) -> Contents:
    return _decode(data, where, Contents)


def _decode(data: bytes, where: str, kind: type[T]) -> T:
    try:
        found = msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Failure(
            f"{where} is not a lake manifest that this version can read ({error}): restore it, or use a newer headrace"
        ) from None
    if found.format != FORMAT:
        raise Failure(f"{where} has format {found.format}, this version reads {FORMAT}: use a newer headrace")
    return found


def encode(document: Commit | Contents | LakeFile) -> bytes:
    return msgspec.json.encode(document)
