"""One line of a history: what one client began, or learned, at one moment.

A history is a list of events in the order of one clock. An operation is an `invoke` and, later, its completion (`ok`,
`fail` or `info`) whose `op` is the `n` of the invoke; an operation without a completion counts as `info`: it may have
happened or not. What takes no time (an assignment, a seek, the opening of a client) is a single `ok` without `op`.
docs/checker.md lists every `f` with its fields. Written by `recorder.py`, read by `operations.py`.

Invariant: `n` rises with `t_mono_ns`, so the order of `n` is the order in time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

INVOKE, OK, FAIL, INFO = "invoke", "ok", "fail", "info"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


class BadHistory(Exception):
    """The history itself is invalid, so nothing can be said about the recorded system."""


class Record(NamedTuple):
    """A message as a reader saw it. `uid` is None if the payload could not be understood."""

    tp: str
    off: int
    uid: str | None
    digest: str | None = None  # sha256 over key, value, headers and timestamp
    key: str | None = None
    src: str | None = None  # the uid of the message that this one was made from, in a pipe
    due: int | None = None  # of a delayed message: when it was due, in the broker's time
    id: int | None = None  # of a delayed message: what the broker knows it by


@dataclass(slots=True)
class Event:
    n: int
    t_mono_ns: int
    proc: str  # one client object from its opening to its closing: "<client>/<session>"
    type: str
    f: str
    op: int | None = None
    group: str | None = None
    tp: str | None = None  # "<topic>-<partition>"
    uid: str | None = None
    off: int | None = None
    epoch: int | None = None  # of the producer, or the group's generation, or the member's epoch
    leader: int | None = None  # leader epoch of the broker that answered
    err: str | None = None
    txn: str | None = None
    digest: str | None = None
    key: str | None = None
    src: str | None = None
    offs: dict[str, int | None] | None = None  # offsets by partition
    metas: dict[str, str | None] | None = None  # what is stored beside committed offsets, by partition
    records: list[Record] | None = None
    marks: dict[str, tuple[int, int]] | None = None  # by partition: the fetch's leader epoch and high watermark
    details: dict[str, Any] | None = None

    def line(self) -> str:
        """This event as one line of JSON, without empty fields."""
        said = {name: value for name in NAMES if (value := getattr(self, name)) is not None}
        return json.dumps(said, separators=(",", ":"))


NAMES = tuple(field.name for field in fields(Event))


def parse(line: str) -> Event:
    try:
        said = json.loads(line)
        if "records" in said:
            said["records"] = [Record(*record) for record in said["records"]]
        return Event(**said)
    except (ValueError, TypeError) as error:
        raise BadHistory(f"not an event: {line.strip()[:120]!r} ({error})") from None


def parse_all(lines: Iterable[str]) -> Iterator[Event]:
    return (parse(line) for line in lines if line.strip())


def merge(histories: Iterable[Iterable[Event]]) -> list[Event]:
    """Merges histories of several processes on one machine, which share its monotonic clock."""
    tagged = [(event, which) for which, history in enumerate(histories) for event in history]
    tagged.sort(key=lambda pair: (pair[0].t_mono_ns, pair[1], pair[0].n))
    renumbered = {(which, event.n): n for n, (event, which) in enumerate(tagged)}
    for event, which in tagged:
        event.n = renumbered[which, event.n]
        if event.op is not None:
            if (which, event.op) not in renumbered:
                raise BadHistory(f"{event.proc} completes {event.f} {event.op}, which its file does not begin")
            event.op = renumbered[which, event.op]
    return [event for event, _ in tagged]
