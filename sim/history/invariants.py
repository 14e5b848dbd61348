"""The names of the invariants, how violations are reported, and the few limits that a run can set.

Shared by all families of checks. Invariant: a violation names events by their `n`, so that they can be found in the
file, and contains a sentence that can be understood without this code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

INVARIANTS = {
    "P1": "an acknowledged message is never lost",
    "P2": "an offset holds one message, whoever reads it",
    "P3": "what was read once stays readable",
    "P4": "a send that certainly failed is never read",
    "P5": "an idempotent send is stored once",
    "P6": "a producer's messages stand in the order in which it sent them",
    "P7": "a reader skips nothing and does not go back",
    "P8": "what is acknowledged is there for everybody who asks afterwards",
    "P9": "after the last fault everything is delivered in time",
    "P10": "a message arrives as it was sent, and only if it was sent",
    "G1": "a partition has one owner in a group",
    "G2": "a committed offset is one register: every read sees the latest write",
    "G3": "only what was delivered is committed",
    "G4": "a new owner resumes at the committed offset",
    "G5": "a committed offset is never forgotten",
    "G6": "a member of an older generation cannot commit",
    "G7": "a group comes to rest",
    "T1": "a transaction is seen whole or not at all",
    "T2": "nothing of a transaction is seen before its commit",
    "T3": "a pipe turns each input into exactly one output",
    "T4": "a fenced producer can do nothing",
    "T5": "each transaction is closed by one marker in every partition",
    "T6": "sequence numbers in the log have no gap",
    "T7": "transactions read from each other without a cycle",
    "T8": "the index of aborted transactions agrees with the log",
    "D1": "a delayed message is not delivered before it is due",
    "D2": "a delayed message is delivered soon after it is due",
    "D3": "a delayed message is delivered once, unless it was cancelled",
    "D4": "delayed messages of a partition are released in the order of due time and id",
}


class Violation(NamedTuple):
    invariant: str
    events: tuple[int, ...]
    sentence: str

    def __str__(self) -> str:
        where = ", ".join(str(n) for n in self.events)
        return f"{self.invariant} {self.sentence}" + (f" [events {where}]" if where else "")


@dataclass(frozen=True)
class Limits:
    seen_within_s: float = 60.0  # P9: from the heal, or the acknowledgement if it is later, to the delivery
    stable_within_s: float = 3.0  # G7: from a membership event to the last generation that it causes
    hanging_after_s: float = 10.0  # T5: beyond the transaction timeout
    released_within_s: float = 60.0  # D3: from the due time or the last heal on; what is later counts as lost
    late_within_s: float | None = None  # D2: the same until a message is read; None: as late as may be
    clock_error_ms: int = 5  # D1, D4: by which the times of clients and brokers differ without a known fault
    marker_epoch_rises: bool = True  # T5: a marker's epoch is above its data's (KIP-890), or may equal it


class Report:
    """The result of a family of checks: violations, and counts of events that are allowed but worth knowing."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.counts: dict[str, int] = {}

    def broken(self, invariant: str, sentence: str, *events: int | None) -> None:
        self.violations.append(Violation(invariant, tuple(n for n in events if n is not None), sentence))

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + by
