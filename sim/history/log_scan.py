"""T5, T6 and T8: what the batches of the log say about transactions and sequence numbers.

The input is `batch` events, one for each batch of a partition in the order of the log, as a scan after the heal finds
them. A batch's `details`: base, last, pid, epoch, seq, txn (is it transactional), control (None, "commit" or "abort").
Called by `verdict.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sim.history.event import READ_COMMITTED, Event
from sim.history.invariants import Limits, Report
from sim.history.operations import Operations

SEQUENCES = 1 << 31  # after the last one comes 0


class OpenRange(NamedTuple):
    """A transaction's data in one partition, from its first batch on."""

    epoch: int
    first: int
    n: int


@dataclass(slots=True)
class Scan:
    """One replica of one partition while its batches are walked."""

    tp: str
    begins: int = 0  # this replica may have removed more from the front than others
    open: dict[int, OpenRange] = field(default_factory=dict)  # by producer id
    closed: dict[int, tuple[int, bool]] = field(default_factory=dict)  # its last marker's epoch; nothing since then?
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)  # epoch, last sequence
    aborted: set[tuple[int, int]] = field(default_factory=set)  # producer id, first offset
    data: list[tuple[int, int, int]] = field(default_factory=list)  # base, last, producer id if transactional
    holes: dict[int, list[int]] = field(default_factory=dict)  # base -> offsets, of batches that lack some of theirs
    hidden: list[tuple[int, int, int]] = field(default_factory=list)  # aborted ranges: first, marker, producer id


def check(ops: Operations, limits: Limits, report: Report) -> None:
    prepared = {_decision(event) for event in ops.told.get("prepare", ())}
    for (tp, _), batches in ops.batches.items():
        scan = Scan(tp, (batches[0].details or {}).get("base", 0))
        for event in batches:
            details = event.details or {}
            if details.get("control"):
                _marker(scan, event, details, prepared, limits, report)
            else:
                _data(ops, scan, event, details, report)
        _hanging(ops, scan, batches[-1], limits, report)
        _aborted_index(ops, scan, report)
        _committed_view(ops, scan, report)


def _decision(event: Event) -> tuple[int, int, str]:
    details = event.details or {}
    return details["pid"], details["epoch"], details["control"]


def _marker(
    scan: Scan,
    event: Event,
    details: dict[str, Any],
    prepared: set[tuple[int, int, str]],
    limits: Limits,
    report: Report,
) -> None:
    pid, epoch, base = details["pid"], details["epoch"], details["base"]
    where = f"the {details['control']} marker at {base} of {scan.tp} (producer {pid}, epoch {epoch})"
    if prepared and _decision(event) not in prepared:
        report.broken("T5", f"{where} is there without a decision of the coordinator", event.n)
    data = scan.open.pop(pid, None)
    if data is None:
        if scan.closed.get(pid) == (epoch, True):
            report.broken("T5", f"{where} closes what was closed already", event.n)
    else:
        if epoch < data.epoch or (limits.marker_epoch_rises and epoch == data.epoch):
            sentence = f"{where} closes data of epoch {data.epoch}, which is not older"
            report.broken("T5", sentence, data.n, event.n)
        if details["control"] == "abort":
            scan.aborted.add((pid, data.first))
            scan.hidden.append((data.first, base, pid))
    scan.closed[pid] = (epoch, True)


def _data(ops: Operations, scan: Scan, event: Event, details: dict[str, Any], report: Report) -> None:
    pid, epoch, base, last = details.get("pid", -1), details.get("epoch", -1), details["base"], details["last"]
    scan.data.append((base, last, pid if details.get("txn") else -1))
    if details.get("offs") is not None:
        scan.holes[base] = details["offs"]
    if pid < 0:
        return
    _sequence(ops, scan, event, details, report)
    if not details.get("txn"):
        return
    marker = scan.closed.get(pid)
    if marker is not None:
        if epoch < marker[0]:
            sentence = f"the batch at {base} of {scan.tp} has epoch {epoch} of producer {pid}, closed by {marker[0]}"
            report.broken("T5", sentence, event.n)
        scan.closed[pid] = (marker[0], False)
    data = scan.open.setdefault(pid, OpenRange(epoch, base, event.n))
    if data.epoch != epoch:
        sentence = f"producer {pid} goes on at {base} of {scan.tp} in epoch {epoch}; epoch {data.epoch} was not closed"
        report.broken("T5", sentence, data.n, event.n)
        scan.open[pid] = OpenRange(epoch, base, event.n)


def _sequence(ops: Operations, scan: Scan, event: Event, details: dict[str, Any], report: Report) -> None:
    pid, epoch, seq = details["pid"], details["epoch"], details["seq"]
    count = details["last"] - details["base"] + 1
    before = scan.sequences.get(pid)
    scan.sequences[pid] = (epoch, (seq + count - 1) % SEQUENCES)
    if scan.tp in ops.compacted:
        return
    if before is None:
        expected = 0 if scan.begins == ops.log_start(scan.tp) == 0 else seq
    else:
        expected = (before[1] + 1) % SEQUENCES if before[0] == epoch else 0
    if seq != expected:
        report.broken(
            "T6",
            f"the batch at {details['base']} of {scan.tp} (producer {pid}, epoch {epoch}) has sequence {seq} "
            f"in the place of {expected}",
            event.n,
        )


def _hanging(ops: Operations, scan: Scan, last: Event, limits: Limits, report: Report) -> None:
    if not scan.open:
        return
    times = [event.t_mono_ns for event in ops.events if event.f in ("send", "end") and event.txn is not None]
    timeout_ms = max((session.txn_timeout_ms for session in ops.sessions.values() if session.txn_id), default=0)
    patience_ns = int(timeout_ms * 1e6 + limits.hanging_after_s * 1e9)
    if times and last.t_mono_ns - times[-1] < patience_ns:
        return
    for pid, data in scan.open.items():
        sentence = f"producer {pid} left a transaction open at {data.first} of {scan.tp}, and nobody ended it in time"
        report.broken("T5", sentence, data.n)


def _aborted_index(ops: Operations, scan: Scan, report: Report) -> None:
    """`aborted` events: the aborted transactions in fetches of the whole partition: details.aborted = [[pid, first],
    …].
    """
    for event in ops.told.get("aborted", ()):
        if event.tp != scan.tp:
            continue
        told = {(pid, first) for pid, first in (event.details or {})["aborted"]}
        for pid, first in sorted(scan.aborted - told):
            sentence = f"the abort of producer {pid} from {first} of {scan.tp} on is in the log and not in the index"
            report.broken("T8", sentence, event.n)
        for pid, first in sorted(told - scan.aborted):
            sentence = f"the index of {scan.tp} has an abort of producer {pid} from {first} on, which the log has not"
            report.broken("T8", sentence, event.n)


def _committed_view(ops: Operations, scan: Scan, report: Report) -> None:
    """A `read_committed` consumer got exactly the log without the aborted ranges."""
    final = ops.finals.get((scan.tp, READ_COMMITTED))
    if final is None or scan.tp in ops.compacted:
        return
    stable = min((data.first for data in scan.open.values()), default=1 << 62)
    ranges: dict[int, list[tuple[int, int]]] = {}
    for first, marker, pid in scan.hidden:
        ranges.setdefault(pid, []).append((first, marker))
    expected: set[int] = set()
    place: dict[int, int] = {}
    for base, last, pid in scan.data:
        closed = ranges.get(pid, [])
        at = place.get(pid, 0)
        while at < len(closed) and closed[at][1] < base:
            at += 1
        place[pid] = at
        if base < stable and not (at < len(closed) and closed[at][0] <= base):
            expected.update(scan.holes.get(base, range(base, last + 1)))
    got = {record.off for record in final.records if record.off >= scan.begins}
    for off in sorted(off for off in expected - got if off >= final.start)[:3]:
        report.broken("T8", f"offset {off} of {scan.tp} is committed data, and the final read left it out", final.n)
    for off in sorted(got - expected)[:3]:
        report.broken("T8", f"offset {off} of {scan.tp} is no committed data, and the final read has it", final.n)
