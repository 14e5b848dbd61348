"""D4: the delayed messages of a partition are released in the order of due time and id.

Two releases stand in the wrong order only if the later one could have come first: it was pending, and no open
transaction kept it back, when the other was released. Between leaders nothing is claimed, since a new one learns only
by and by what is committed. Called by `delays.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sim.history.broker_time import BrokerTime
from sim.history.event import OK
from sim.history.invariants import Report
from sim.history.operations import NEVER, Operations

if TYPE_CHECKING:
    from sim.history.delays import Delayed, Release


class Epochs:
    """The leader epoch of each offset, and where transactions were open, as far as the log was scanned."""

    def __init__(self, ops: Operations) -> None:
        self._bases: dict[str, list[int]] = {}
        self._leaders: dict[str, list[int]] = {}
        self._open: dict[str, list[tuple[int, int]]] = defaultdict(list)  # first offset, marker
        longest: dict[str, list[object]] = {}
        for (tp, _), batches in ops.batches.items():
            if tp in longest and len(longest[tp]) >= len(batches):
                continue
            longest[tp] = list(batches)
            self._bases[tp] = [(event.details or {})["base"] for event in batches]
            self._leaders[tp] = [(event.details or {}).get("leader", -1) for event in batches]
            self._open[tp] = []
            first: dict[int, int] = {}
            for event in batches:
                details = event.details or {}
                pid = details.get("pid", -1)
                if details.get("control"):  # without its data: retention has taken these
                    self._open[tp].append((first.pop(pid, 0), details["base"]))
                elif details.get("txn"):
                    first.setdefault(pid, details["base"])
            self._open[tp] += [(base, NEVER) for base in first.values()]
        self._unscanned = {send.tp for send in ops.sends.values() if send.txn is not None} - set(self._bases)

    def at(self, tp: str | None, off: int) -> int | None:
        bases = self._bases.get(tp or "")
        if not bases or off < bases[0]:
            return None
        return self._leaders[tp or ""][bisect_right(bases, off) - 1]

    def scanned(self, tp: str) -> bool:
        return tp in self._bases

    def kept_back(self, tp: str, key: int, at: int) -> bool:
        """Whether a transaction may have kept back the message with this id when something was written at `at`."""
        if tp in self._unscanned:
            return True
        return any(first <= key and marker > at - _RECENT for first, marker in self._open.get(tp, ()))


_RECENT = 50  # offsets that may lie between the choice of what is released and its place in the log


def check_order(ops: Operations, delayed: Iterable[Delayed], time: BrokerTime, epochs: Epochs, report: Report) -> None:
    by_tp: dict[str, list[tuple[Delayed, Release]]] = defaultdict(list)
    for one in delayed:
        for release in one.releases.values():
            if release.record.due is not None and release.record.id is not None:
                by_tp[release.record.tp].append((one, release))
    for tp, releases in by_tp.items():
        releases.sort(key=lambda pair: pair[1].record.off)
        latest: dict[
            int | None, tuple[Delayed, Release]
        ] = {}  # by leader epoch: the release with the highest due time and id
        for one, release in releases:
            record = release.record
            leader = epochs.at(tp, record.off)
            before = latest.get(leader)
            if before is None or _order(before[1]) <= _order(release):
                latest[leader] = one, release
            elif _could_have_come_first(one, release, before, time, epochs):
                first = before[1]
                sentence = (
                    f"{one.send.uid} (due {record.due}, id {record.id}) was released at offset {record.off} of {tp}, "
                    f"after {first.record.uid} (due {first.record.due}, id {first.record.id})"
                )
                report.broken("D4", sentence, one.send.n, first.n, release.n)


def _order(release: Release) -> tuple[int, int]:
    return release.record.due or 0, release.record.id or 0


def _could_have_come_first(
    one: Delayed, release: Release, before: tuple[Delayed, Release], time: BrokerTime, epochs: Epochs
) -> bool:
    """Whether it was acknowledged, and hence known as committed to the leader, before the other was due, or sent."""
    send, key, tp = one.send, release.record.id or 0, release.record.tp
    other, first = before[0].send, before[1].record
    if one.changes or one.repeats or send.txn is not None or send.status != OK:
        return False
    leader = epochs.at(tp, key)
    if epochs.scanned(tp) and (leader is None or leader != epochs.at(tp, first.off)):
        return False  # None: what the log said then has been removed
    sent_later = send.end < other.n and not before[0].repeats
    if not sent_later and not (time.known and time.latest(send.end) < (first.due or 0)):
        return False
    return not epochs.kept_back(tp, key, first.off)
