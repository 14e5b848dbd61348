"""The contents of the log, reconstructed from everything that clients were told about it.

`log[tp]` maps offsets to uids, from acknowledged sends (acks=all) and all reads. The dense order is the list of its
offsets without holes, so that "the next message" is a step of one even if markers or compaction leave gaps; for
`read_committed`, messages of transactions that did not commit are holes too. Built once per verdict from `Operations`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from sim.history.event import FAIL, INFO, OK, READ_COMMITTED, READ_UNCOMMITTED, Record
from sim.history.operations import Operations, Transaction


class Dense:
    """Offsets in order, and the position of each."""

    def __init__(self, offsets: list[int]) -> None:
        self.offsets = offsets
        self.place = {off: place for place, off in enumerate(offsets)}

    def at_or_after(self, off: int) -> int:
        """The position of the first message that a reader from this offset on gets."""
        return bisect_left(self.offsets, off)


@dataclass(slots=True)
class Clash:
    tp: str
    off: int
    uids: tuple[str, str]
    events: tuple[int, int]


@dataclass(slots=True)
class ObservedLog:
    log: dict[str, dict[int, tuple[str, int]]] = field(default_factory=lambda: defaultdict(dict))  # uid, first event
    places: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # uid -> where it was seen
    clashes: list[Clash] = field(default_factory=list)
    first_read: dict[str, int] = field(default_factory=dict)  # uid -> the first poll or final read that had it
    seen_committed: dict[str, int] = field(default_factory=dict)  # the same, by readers of committed data
    hidden: set[str] = field(default_factory=set)  # uids that readers of committed data must not see
    keys: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))  # tp -> key -> last offset
    _dense: dict[tuple[str, str], Dense] = field(default_factory=dict)

    def dense(self, tp: str, isolation: str) -> Dense:
        if not self.hidden:
            isolation = READ_UNCOMMITTED
        if (tp, isolation) not in self._dense:
            hidden = self.hidden if isolation == READ_COMMITTED else set()
            offsets = sorted(off for off, (uid, _) in self.log.get(tp, {}).items() if uid not in hidden)
            self._dense[tp, isolation] = Dense(offsets)
        return self._dense[tp, isolation]

    def offset(self, uid: str) -> int | None:
        """Where a message is stored; the first position, if it was stored twice."""
        places = self.places.get(uid)
        return min(off for _, off in places) if places else None

    def superseded(self, tp: str, off: int, key: str | None) -> bool:
        """Whether compaction may have removed this offset: a later message has its key."""
        return key is not None and self.keys[tp].get(key, -1) > off

    def _note(self, tp: str, off: int, uid: str, n: int) -> None:
        there = self.log[tp].setdefault(off, (uid, n))
        if there[0] != uid:
            self.clashes.append(Clash(tp, off, (there[0], uid), (there[1], n)))
            return
        places = self.places.get(uid)
        if places is None:
            self.places[uid] = [(tp, off)]
        elif (tp, off) not in places:
            places.append((tp, off))


def reads(ops: Operations) -> Iterator[tuple[int, str, Record]]:
    """Every message that was read: the event, the reader's isolation, the record; final reads come last."""
    for event in ops.polls:
        isolation = ops.isolation(event.proc)
        for record in event.records or ():
            yield event.n, isolation, record
    for (_, isolation), final in ops.finals.items():
        for record in final.records:
            yield final.n, isolation, record


def observe(ops: Operations) -> ObservedLog:
    seen = ObservedLog()
    for send in ops.sends.values():
        if send.order:  # it is kept back, and comes at another offset; or never
            continue
        if send.status == OK and send.off >= 0 and send.tp is not None and ops.sessions[send.proc].acks == "all":
            seen._note(send.tp, send.off, send.uid, send.end)
            if send.key is not None:
                last = seen.keys[send.tp]
                last[send.key] = max(last.get(send.key, -1), send.off)
    for n, isolation, record in reads(ops):
        if record.uid is None:
            continue
        seen._note(record.tp, record.off, record.uid, n)
        seen.first_read.setdefault(record.uid, n)
        if isolation == READ_COMMITTED:
            seen.seen_committed.setdefault(record.uid, n)
        if record.key is not None:
            last = seen.keys[record.tp]
            last[record.key] = max(last.get(record.key, -1), record.off)
    for txn in ops.txns.values():
        if txn.status == FAIL or (txn.status == INFO and not shown(seen, txn)):
            seen.hidden.update(send.uid for send in txn.sends)
    return seen


def shown(seen: ObservedLog, txn: Transaction) -> bool:
    """Whether any `read_committed` consumer saw a message of this transaction."""
    return any(send.uid in seen.seen_committed for send in txn.sends)
