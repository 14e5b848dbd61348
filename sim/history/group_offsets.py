"""G2 to G5: committed offsets return the last commit, cover only what was delivered, and are where members resume.

Pure functions over the commits and offset fetches of each (group, partition). Called by `verdict.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass

from sim.history.event import FAIL, OK, Event
from sim.history.invariants import Report
from sim.history.observed_log import ObservedLog
from sim.history.operations import NEVER, Commit, OffsetFetch, Operations
from sim.history.register import Cluster, Span, conflicts


def check(ops: Operations, seen: ObservedLog, report: Report) -> None:
    for key in ops.commits.keys() | ops.fetches.keys():
        commits, fetches = ops.commits.get(key, []), ops.fetches.get(key, [])
        commits.sort(key=lambda commit: commit.n)
        one_register(key, commits, fetches, report)
        never_forgotten(key, commits, fetches, report)
    reading = _readings(ops)
    for key in sorted(reading):
        delivered_before_committed(ops, seen, key, reading[key], report)
        resumed(ops, seen, key, reading[key], report)


# --- the register ----------------------------------------------------------------------------------------------------


def one_register(key: tuple[str, str], commits: list[Commit], fetches: list[OffsetFetch], report: Report) -> None:
    group, tp = key
    by_meta = {commit.meta: commit for commit in commits if commit.meta}
    clusters: dict[str, Cluster] = {}
    for meta, commit in by_meta.items():
        if commit.status == OK and meta is not None:
            clusters[meta] = Cluster(meta, Span(commit.n, commit.end))
    for fetch in fetches:
        if fetch.off < 0 or not fetch.meta:
            continue
        source = by_meta.get(fetch.meta)
        if source is None or source.off != fetch.off:
            sentence = f"group {group} was told offset {fetch.off} ({fetch.meta}) for {tp}, which nobody committed"
            report.broken("G2", sentence, fetch.n, fetch.end)
            continue
        if source.status == FAIL:
            if source.txn is None:  # T1 checks offsets of aborted transactions
                sentence = f"group {group} was told offset {fetch.off} for {tp}, whose commit had been refused"
                report.broken("G2", sentence, source.n, fetch.end)
            continue
        cluster = clusters.setdefault(fetch.meta, Cluster(fetch.meta, Span(source.n, source.end)))
        cluster.reads.append(Span(fetch.n, fetch.end))
    for one, other in conflicts(list(clusters.values())):
        first, second = by_meta[one.value], by_meta[other.value]
        if one is other:
            sentence = f"group {group} was told offset {first.off} for {tp} before anybody committed it"
        else:
            sentence = (
                f"no order of the commits of group {group} for {tp} explains what was read: "
                f"{first.off} ({one.value}) and {second.off} ({other.value}) take turns"
            )
        report.broken("G2", sentence, first.n, second.n)


def never_forgotten(key: tuple[str, str], commits: list[Commit], fetches: list[OffsetFetch], report: Report) -> None:
    known = min((commit.end for commit in commits if commit.status == OK), default=NEVER)
    known = min([known, *(fetch.end for fetch in fetches if fetch.off >= 0)])
    for fetch in fetches:
        if fetch.off < 0 and fetch.n > known:
            sentence = f"group {key[0]} was told that it has no offset for {key[1]}, and it had committed one"
            report.broken("G5", sentence, known, fetch.end)


# --- deliveries ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Start:
    """A member begins to read a partition: at the assignment, with the first message that it got then."""

    proc: str
    n: int
    first_off: int = -1
    first_n: int = NEVER


@dataclass(slots=True)
class Reading:
    """How one group read one partition."""

    delivered: dict[int, int]  # offset -> the first poll that had it
    starts: list[Start]
    sought: int = -1  # everything below was skipped by a seek, or may have been


def _readings(ops: Operations) -> dict[tuple[str, str], Reading]:
    readings: dict[tuple[str, str], Reading] = defaultdict(lambda: Reading({}, []))
    open_starts: dict[tuple[str, str], Start] = {}
    for event in ops.events:
        if event.type != OK or event.f not in ("poll", "assign", "revoke", "lost", "seek"):
            continue
        group = ops.sessions[event.proc].group
        if group is None:
            continue
        if event.f == "poll":
            _deliver(event, group, readings, open_starts)
            continue
        for tp, off in (event.offs or {}).items():
            open_starts.pop((event.proc, tp), None)
            reading = readings[group, tp]
            if event.f == "seek":
                reading.sought = max(reading.sought, off or 0)
            elif event.f == "assign":
                start = open_starts[event.proc, tp] = Start(event.proc, event.n)
                reading.starts.append(start)
    return readings


def _deliver(
    event: Event, group: str, readings: dict[tuple[str, str], Reading], open_starts: dict[tuple[str, str], Start]
) -> None:
    for record in event.records or ():
        readings[group, record.tp].delivered.setdefault(record.off, event.n)
        if open_starts and (start := open_starts.pop((event.proc, record.tp), None)) is not None:
            start.first_off, start.first_n = record.off, event.n


def delivered_before_committed(
    ops: Operations, seen: ObservedLog, key: tuple[str, str], reading: Reading, report: Report
) -> None:
    group, tp = key
    sessions = [session for session in ops.sessions.values() if session.group == group]
    dense = seen.dense(tp, sessions[0].isolation)
    if any(session.reset == "earliest" for session in sessions):
        begin = ops.log_start(tp)
    else:
        begin = min(reading.delivered, default=NEVER)
    covered = dense.at_or_after(max(begin, reading.sought))
    told = {fetch.meta for fetch in ops.fetches.get(key, ()) if fetch.meta}
    for commit in sorted(ops.commits.get(key, ()), key=lambda commit: commit.sent):
        if commit.status != OK and (commit.status == FAIL or commit.meta not in told):
            continue
        upto = dense.at_or_after(commit.off)
        missed = [
            off
            for off in dense.offsets[covered:upto]
            if reading.delivered.get(off, NEVER) > commit.sent and tp not in ops.compacted
        ]
        covered = max(covered, upto)
        if missed:
            report.broken(
                "G3",
                f"group {group} committed {commit.off} for {tp} before {len(missed)} messages below it were "
                f"delivered, the first at {missed[0]}",
                commit.sent,
                reading.delivered.get(missed[0]),
            )


def resumed(ops: Operations, seen: ObservedLog, key: tuple[str, str], reading: Reading, report: Report) -> None:
    group, tp = key
    if tp in ops.compacted:
        return
    commits = [commit for commit in ops.commits.get(key, ()) if commit.status != FAIL]
    confirmed = sorted((commit for commit in commits if commit.end < NEVER), key=lambda commit: commit.end)
    ends = [commit.end for commit in confirmed]
    latest: list[int] = []  # by place in `confirmed`: the latest beginning among those that ended so far
    for commit in confirmed:
        latest.append(max(commit.n, latest[-1] if latest else -1))
    earliest: list[int] = []  # the earliest beginning from there on, made from the end
    for commit in reversed(confirmed):
        earliest.append(min(commit.n, earliest[-1] if earliest else NEVER))
    earliest.reverse()
    doubtful = [commit for commit in commits if commit.end == NEVER]
    log_start = ops.log_start(tp)
    for start in reading.starts:
        done = bisect_left(ends, start.n)
        if start.first_off < 0 or done == 0:
            continue
        # A commit is out of date if another one began after its end and was confirmed before the start.
        first = bisect_left(ends, latest[done - 1])
        last = bisect_left(ends, start.first_n)
        while last < len(ends) and earliest[last] < start.first_n:
            last += 1
        possible = [commit for commit in confirmed[first:last] + doubtful if commit.n < start.first_n]
        dense = seen.dense(tp, ops.isolation(start.proc))
        place = dense.place.get(start.first_off)
        if place is None or any(
            commit.off < log_start or dense.at_or_after(commit.off) == place for commit in possible
        ):
            continue
        offsets = sorted({commit.off for commit in possible})
        report.broken(
            "G4",
            f"{start.proc} was given {tp} in group {group} and began at {start.first_off}; committed "
            f"was {' or '.join(map(str, offsets))}",
            start.n,
            start.first_n,
            *(commit.n for commit in possible[-2:]),
        )
