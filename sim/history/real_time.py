"""P8 and P9: an acknowledged message is visible immediately to every client that asks, and soon to every reader.

A sweep over the events in the order of time. Called by `verdict.py`. Invariant of the sweep: `floor` only contains what
a completed operation has proved, so whatever is invoked later must not see less.
"""

from __future__ import annotations

from collections import defaultdict

from sim.history.event import INVOKE, OK, READ_COMMITTED, Event
from sim.history.invariants import Limits, Report
from sim.history.observed_log import ObservedLog
from sim.history.operations import Operations

END, STABLE = "end", "stable"  # the high watermark, and the last stable offset


def check(ops: Operations, seen: ObservedLog, limits: Limits, report: Report) -> None:
    watermarks(ops, report)
    deliveries(ops, seen, limits, report)


class Floor:
    """The least that a watermark can be, and the event that proves it, by partition."""

    def __init__(self) -> None:
        self._least: dict[str, tuple[int, int]] = {}

    def raise_to(self, tp: str, off: int, n: int) -> None:
        if off > self.at(tp)[0]:
            self._least[tp] = (off, n)

    def at(self, tp: str) -> tuple[int, int]:
        return self._least.get(tp, (0, -1))


def watermarks(ops: Operations, report: Report) -> None:
    floors = {END: Floor(), STABLE: Floor()}
    asked: dict[int, tuple[int, int]] = {}  # the floor when a question was asked
    leaders: dict[str, int] = {}  # the newest leader epoch that acknowledged something
    leaders_asked: dict[int, dict[str, int]] = {}
    for event in ops.events:
        if event.type == INVOKE:
            if event.f == "list_offsets" and event.tp is not None:
                asked[event.n] = floors[_which(event)].at(event.tp)
            elif event.f == "poll" and leaders:
                leaders_asked[event.n] = dict(leaders)
        elif event.type == OK:
            if event.f == "send":
                _acknowledged(ops, event, floors[END], leaders)
            elif event.f == "list_offsets":
                _answered(ops, event, floors, asked, report)
            elif event.f == "poll":
                _read(ops, event, floors, leaders_asked.pop(event.op or -1, {}), report)


def _which(event: Event) -> str:
    return STABLE if (event.details or {}).get("at") == STABLE else END


def _acknowledged(ops: Operations, event: Event, end: Floor, leaders: dict[str, int]) -> None:
    if event.tp is None:
        return
    if event.off is not None and event.off >= 0 and ops.sessions[event.proc].acks == "all":
        end.raise_to(event.tp, event.off + 1, event.n)
    if event.leader is not None:
        leaders[event.tp] = max(event.leader, leaders.get(event.tp, -1))


def _answered(
    ops: Operations, event: Event, floors: dict[str, Floor], asked: dict[int, tuple[int, int]], report: Report
) -> None:
    if event.tp is None or event.off is None or event.op is None:
        return
    which = _which(ops.invokes[event.op])
    least, proof = asked.pop(event.op)
    name = "end" if which == END else "last stable offset"
    if event.off < least:
        report.broken(
            "P8", f"the {name} of {event.tp} was told as {event.off} after it had reached {least}", proof, event.n
        )
    floors[which].raise_to(event.tp, event.off, event.n)
    if which == STABLE:  # the end is never below the last stable offset
        floors[END].raise_to(event.tp, event.off, event.n)


def _read(
    ops: Operations, event: Event, floors: dict[str, Floor], leaders_before: dict[str, int], report: Report
) -> None:
    committed = ops.isolation(event.proc) == READ_COMMITTED
    marks = event.marks or {}
    for tp, (leader, _) in marks.items():
        if leader < leaders_before.get(tp, -1):
            report.count("reads from a leader that had been replaced")
    for record in event.records or ():
        floors[END].raise_to(record.tp, record.off + 1, event.n)
        if committed:
            floors[STABLE].raise_to(record.tp, record.off + 1, event.n)
        mark = marks.get(record.tp)
        if mark is not None and record.off >= mark[1]:
            sentence = f"offset {record.off} of {record.tp} was handed out above the high watermark {mark[1]}"
            report.broken("P8", sentence, event.n)


def deliveries(ops: Operations, seen: ObservedLog, limits: Limits, report: Report) -> None:
    """After the last heal, everything acknowledged reaches those who read its partition to the end."""
    heals = ops.told.get("heal")
    if not heals:
        return
    heal_ns, history_ends_ns = heals[-1].t_mono_ns, ops.events[-1].t_mono_ns
    watched = _watched(ops)
    times = {event.n: event.t_mono_ns for event in ops.events}
    final_reads = {final.n for final in ops.finals.values()}  # the checker's own, no delivery to anybody
    for send in ops.sends.values():
        if send.status != OK or send.off < 0 or send.order or send.uid in seen.hidden or send.tp not in watched:
            continue
        lowest, until_ns = watched[send.tp]
        deadline_ns = max(heal_ns, times[send.end]) + int(limits.seen_within_s * 1e9)
        read = seen.first_read.get(send.uid)
        late = read is None or read in final_reads or times[read] > deadline_ns
        if late and max(lowest, ops.log_start(send.tp)) <= send.off and deadline_ns <= min(until_ns, history_ends_ns):
            report.broken(
                "P9",
                f"{send.uid} at offset {send.off} of {send.tp} was not delivered within "
                f"{limits.seen_within_s:g} s after the last fault",
                heals[-1].n,
                send.end,
            )


def _watched(ops: Operations) -> dict[str, tuple[int, float]]:
    """By partition: the lowest offset that its readers wanted, and until when there were any."""
    closed_ns: dict[str, float] = {}
    readers: dict[str, set[str]] = defaultdict(set)
    lowest: dict[str, int] = {}
    for event in ops.events:
        if event.type != OK:
            continue
        if event.f == "close":
            closed_ns[event.proc] = event.t_mono_ns
        elif event.f in ("assign", "seek"):
            for tp, off in (event.offs or {}).items():
                readers[tp].add(event.proc)
                if off is not None:
                    lowest[tp] = min(off, lowest.get(tp, off))
        elif event.f == "poll":
            for record in event.records or ():
                readers[record.tp].add(event.proc)
                lowest[record.tp] = min(record.off, lowest.get(record.tp, record.off))
    watched = {}
    for tp, procs in readers.items():
        if any(ops.sessions[proc].reset == "earliest" for proc in procs):
            lowest[tp] = 0
        if tp in lowest:
            watched[tp] = lowest[tp], max(closed_ns.get(proc, float("inf")) for proc in procs)
    return watched
