"""The verdict on a history: all families of checks, one after the other.

`judge` is what tests and simulations call: `assert not judge(recorder.events).violations`. Invariant: the verdict
depends on the events only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sim.history import cycles, delays, group_offsets, groups, log_scan, produce_consume, real_time, transactions
from sim.history.event import Event
from sim.history.invariants import INVARIANTS, Limits, Report, Violation
from sim.history.observed_log import observe
from sim.history.operations import gather

SHOWN_PER_INVARIANT = 5


@dataclass(frozen=True)
class Verdict:
    violations: list[Violation]
    counts: dict[str, int]

    @property
    def broken(self) -> set[str]:
        """The invariants that do not hold."""
        return {violation.invariant for violation in self.violations}

    def __str__(self) -> str:
        """A readable summary: the first few violations of each invariant, then the counts."""
        lines = []
        totals = Counter(violation.invariant for violation in self.violations)
        for name in (name for name in INVARIANTS if name in totals):
            lines.append(f"{name} is broken {totals[name]} times: {INVARIANTS[name]}")
            own = [violation for violation in self.violations if violation.invariant == name]
            lines += [f"  {violation}" for violation in own[:SHOWN_PER_INVARIANT]]
            if len(own) > SHOWN_PER_INVARIANT:
                lines.append(f"  and {len(own) - SHOWN_PER_INVARIANT} more")
        if not lines:
            lines.append("every invariant holds")
        return "\n".join(lines + [f"{what}: {count}" for what, count in self.counts.items()])


def judge(events: Iterable[Event], limits: Limits | None = None) -> Verdict:
    limits = limits or Limits()
    ops = gather(events)
    seen = observe(ops)
    report = Report()
    report.count("events", len(ops.events))
    report.count("messages sent", len(ops.sends))
    report.count("messages read", len(seen.first_read))
    produce_consume.check(ops, seen, report)
    real_time.check(ops, seen, limits, report)
    groups.check(ops, limits, report)
    group_offsets.check(ops, seen, report)
    transactions.check(ops, seen, report)
    log_scan.check(ops, limits, report)
    cycles.check(ops, seen, report)
    delays.check(ops, seen, limits, report)
    return Verdict(report.violations, report.counts)
