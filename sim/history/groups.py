"""G1, G6 and G7: who owns a partition of a group, who may commit, and when the group becomes stable.

Ownership is checked by generation first, which needs no clock: no other member has the partition in the same
generation. It is checked by time only if the previous owner gave it back properly or the broker reported when it fenced
that owner. A member that learns later that it was removed may have believed in its ownership for a while, which is
allowed. `group_offsets.py` has G2 to G5. Called by `verdict.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.history.event import OK, Event
from sim.history.invariants import Limits, Report
from sim.history.operations import Operations

JOINS_AND_LEAVES = frozenset(("join", "leave", "close", "lost", "fenced", "partitions"))


def check(ops: Operations, limits: Limits, report: Report) -> None:
    for group, events in ops.membership.items():
        if group:
            exclusive_owners(ops, group, events, report)
            rest(ops, group, events, limits, report)
    fenced_commits(ops, report)


@dataclass(slots=True)
class Ownership:
    """The partitions of one group while its history is replayed."""

    held: dict[str, dict[str, int]] = field(default_factory=dict)  # member -> partition -> event of its assignment
    by_generation: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)  # -> member, event
    last_assigned: dict[str, tuple[str, int]] = field(default_factory=dict)  # partition -> member, event


def exclusive_owners(ops: Operations, group: str, events: list[Event], report: Report) -> None:
    owners = Ownership()
    for event in events:
        if event.f not in ("assign", "revoke", "lost", "fenced", "close"):
            continue
        member = ops.sessions[event.proc].member
        held = owners.held.setdefault(member, {})
        if event.f == "assign":
            for tp in event.offs or {}:
                held[tp] = event.n
                owners.last_assigned[tp] = (member, event.n)
            if event.epoch is not None:  # partitions that it kept belong to it in the new generation too
                for tp in held:
                    _hold(owners, group, tp, event.epoch, member, event.n, report)
            continue
        for tp in list(held) if event.offs is None else event.offs:
            since = held.pop(tp, None)
            if since is not None and event.f in ("revoke", "fenced"):
                other, n = owners.last_assigned[tp]
                if other != member and n > since:
                    report.broken(
                        "G1",
                        f"{other} was given {tp} in group {group} while {member} still had it",
                        since,
                        n,
                        event.n,
                    )


def _hold(owners: Ownership, group: str, tp: str, epoch: int, member: str, n: int, report: Report) -> None:
    other, since = owners.by_generation.setdefault((tp, epoch), (member, n))
    if other != member:
        sentence = f"{other} and {member} both have {tp} in generation {epoch} of group {group}"
        report.broken("G1", sentence, since, n)


def fenced_commits(ops: Operations, report: Report) -> None:
    """A commit that began after a newer owner was known, but was accepted."""
    owners: dict[tuple[str, str], list[tuple[int, int, str]]] = {}  # the newest generation so far, its event, member
    for group, events in ops.membership.items():
        for event in events:
            if event.f == "assign" and event.epoch is not None:
                for tp in event.offs or {}:
                    known = owners.setdefault((group, tp), [])
                    if not known or event.epoch > known[-1][0]:
                        known.append((event.epoch, event.n, ops.sessions[event.proc].member))
    for (group, tp), commits in ops.commits.items():
        newer = owners.get((group, tp), [])
        at = 0
        for commit in sorted(commits, key=lambda commit: commit.sent):
            while at < len(newer) and newer[at][1] < commit.sent:
                at += 1
            if commit.status != OK or commit.epoch is None or at == 0:
                continue
            epoch, n, member = newer[at - 1]
            if commit.epoch < epoch and ops.sessions[commit.proc].member != member:
                report.broken(
                    "G6",
                    f"{commit.proc} of generation {commit.epoch} committed {commit.off} for {tp} in group {group} "
                    f"after {member} had become its owner in generation {epoch}",
                    n,
                    commit.sent,
                )


def rest(ops: Operations, group: str, events: list[Event], limits: Limits, report: Report) -> None:
    left = {event.proc for event in events if event.f == "leave"}
    reasons = [
        event for event in events if event.f in JOINS_AND_LEAVES and (event.f != "close" or event.proc not in left)
    ]
    reasons = sorted(reasons + _moves(ops, group), key=lambda event: event.n)
    generations: dict[int, Event] = {}
    for event in events:
        if event.f == "assign" and event.epoch is not None:
            generations.setdefault(event.epoch, event)
    if not generations:
        return
    count = max(generations) - min(generations) + 1
    if count > 2 * len(reasons):
        report.broken(
            "G7",
            f"group {group} went through {count} generations for {len(reasons)} joins, leaves and moves",
            generations[max(generations)].n,
        )
    _restless(ops, group, reasons, list(generations.values()), limits, report)


def _moves(ops: Operations, group: str) -> list[Event]:
    """Moves of the coordinator; one that names no group moves all of them."""
    own = [event for event in ops.membership.get(group, ()) if event.f == "move"]
    return own + [event for event in ops.membership.get("", ()) if event.f == "move"]


def _restless(
    ops: Operations, group: str, reasons: list[Event], generations: list[Event], limits: Limits, report: Report
) -> None:
    at, settled_by_ns = 0, -1
    for event in generations:
        while at < len(reasons) and reasons[at].n < event.n:
            settled_by_ns = max(settled_by_ns, _settled_by_ns(ops, reasons[at], limits))
            at += 1
        if event.t_mono_ns > settled_by_ns:
            report.broken(
                "G7",
                f"group {group} made generation {event.epoch} later than {limits.stable_within_s:g} s "
                "after anybody had joined, left or moved",
                reasons[at - 1].n if at else None,
                event.n,
            )


def _settled_by_ns(ops: Operations, reason: Event, limits: Limits) -> int:
    wait_s = limits.stable_within_s
    if reason.f == "close" and (reason.details or {}).get("crashed"):
        wait_s += ops.sessions[reason.proc].session_timeout_ms / 1000
    return reason.t_mono_ns + int(wait_s * 1e9)
