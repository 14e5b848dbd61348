"""T1 to T4: a transaction is visible completely or not at all, not too early, and not after its producer was fenced.

Pure functions over the transactions of a history and what `read_committed` consumers saw. `log_scan.py` has T5, T6 and
T8, `cycles.py` T7. Called by `verdict.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Any

from sim.history.event import FAIL, INFO, OK, READ_COMMITTED, Event
from sim.history.invariants import Report
from sim.history.observed_log import ObservedLog
from sim.history.operations import NEVER, Commit, Init, Operations, Send, Transaction


def check(ops: Operations, seen: ObservedLog, report: Report) -> None:
    if ops.txns:
        all_or_none(ops, seen, report)
        no_early_read(ops, seen, report)
        fencing(ops, seen, report)
    for pipe in ops.told.get("pipe", ()):
        pipes(ops, pipe, report)


# --- T1 --------------------------------------------------------------------------------------------------------------


def all_or_none(ops: Operations, seen: ObservedLog, report: Report) -> None:
    final: dict[str, set[str | None]] = {
        tp: {record.uid for record in read.records}
        for (tp, isolation), read in ops.finals.items()
        if isolation == READ_COMMITTED
    }
    told = {key: {fetch.meta for fetch in fetches if fetch.meta} for key, fetches in ops.fetches.items()}
    for txn in ops.txns.values():
        taken = [commit.meta in told.get((group, tp), ()) for group, tp, commit in txn.offsets]
        if txn.status == FAIL:
            _nothing_seen(seen, txn, taken, report)
            continue
        if txn.status == INFO:
            report.count("transactions of which nobody knows the end")
        proof = _proof(seen, txn)
        if proof is None and not any(taken):
            continue
        why = "was committed" if txn.status == OK else "was seen in part"
        for send in txn.sends:
            if _is_missing(ops, send, final):
                sentence = f"transaction {txn.txn} {why}; its message {send.uid} is not in the final read of {send.tp}"
                report.broken("T1", sentence, txn.commit, send.n)
        for (group, tp, commit), is_taken in zip(txn.offsets, taken, strict=True):
            if not is_taken and proof is not None and _overlooked(ops, group, tp, commit, proof):
                sentence = (
                    f"transaction {txn.txn} {why}; its offset {commit.off} for {tp} of group {group} is not there"
                )
                report.broken("T1", sentence, txn.commit, commit.sent)


def _nothing_seen(seen: ObservedLog, txn: Transaction, taken: list[bool], report: Report) -> None:
    for send in txn.sends:
        if send.uid in seen.seen_committed:
            sentence = f"transaction {txn.txn} was not committed, and its message {send.uid} was read as committed"
            report.broken("T1", sentence, send.n, seen.seen_committed[send.uid])
    for (group, tp, commit), is_taken in zip(txn.offsets, taken, strict=True):
        if is_taken:
            sentence = f"transaction {txn.txn} was not committed, and its offset {commit.off} for {tp} of {group} was"
            report.broken("T1", sentence, commit.sent)


def _proof(seen: ObservedLog, txn: Transaction) -> int | None:
    """The event from which on the transaction is known to be committed."""
    if txn.status == OK:
        return txn.end
    return min((seen.seen_committed[send.uid] for send in txn.sends if send.uid in seen.seen_committed), default=None)


def _is_missing(ops: Operations, send: Send, final: dict[str, set[str | None]]) -> bool:
    if send.status != OK or send.order or send.tp is None or send.tp not in final or send.tp in ops.compacted:
        return False
    return send.uid not in final[send.tp] and send.off >= ops.log_start(send.tp)


def _overlooked(ops: Operations, group: str, tp: str, commit: Commit, proof: int) -> bool:
    """Whether the last fetch is below this commit, and nobody else can have put the offset back."""
    fetches = ops.fetches.get((group, tp))
    if not fetches or not commit.stable or fetches[-1].n < proof or fetches[-1].off >= commit.off:
        return False
    others = (other for other in ops.commits[group, tp] if other.off < commit.off and other.status != FAIL)
    return not any(other.end > commit.n for other in others)


# --- T2 --------------------------------------------------------------------------------------------------------------


def no_early_read(ops: Operations, seen: ObservedLog, report: Report) -> None:
    readers = {event.n: event.proc for event in ops.polls}
    for txn in ops.txns.values():
        if txn.commit is None:
            continue
        for send in txn.sends:
            read = seen.seen_committed.get(send.uid, NEVER)
            if read < txn.commit:
                sentence = f"{send.uid} was read as committed before transaction {txn.txn} asked for its commit"
                if readers[read].partition("/")[0] == txn.proc.partition("/")[0]:
                    sentence += " (its own client read it)"
                report.broken("T2", sentence, send.n, read, txn.commit)


# --- T3 --------------------------------------------------------------------------------------------------------------


def pipes(ops: Operations, pipe: Event, report: Report) -> None:
    """`details`: group, inputs and outputs (partitions), and mode: "exactly-once" unless told."""
    details: dict[str, Any] = pipe.details or {}
    mode = details.get("mode", "exactly-once")
    made: Counter[str | None] = Counter()
    for tp in details["outputs"]:
        output = ops.finals.get((tp, READ_COMMITTED))
        for record in output.records if output else ():
            send = ops.sends.get(record.uid or "")
            made[record.src or (send.src if send else None)] += 1
    for tp in details["inputs"]:
        source = ops.finals.get((tp, READ_COMMITTED))
        fetches = ops.fetches.get((details["group"], tp), [])
        committed = max(fetches[-1].off, 0) if fetches else 0
        for record in source.records if source else ():
            count = made[record.uid]
            where = f"{record.uid} at offset {record.off} of {tp}"
            if record.off < committed and count == 0 and mode != "at-most-once":
                report.broken("T3", f"{where} is below the committed {committed} and no output was made of it", pipe.n)
            elif count > 1 and mode != "at-least-once":
                report.broken("T3", f"{where} has {count} outputs", pipe.n)
            elif record.off >= committed and count > 0 and mode == "exactly-once":
                report.broken("T3", f"{where} has an output, and only {committed} is committed", pipe.n)


# --- T4 --------------------------------------------------------------------------------------------------------------


class Incarnations:
    """For each initialisation of a transactional id: when a later one had fenced it for certain."""

    def __init__(self, inits: list[Init]) -> None:
        by_end = sorted(inits, key=lambda init: init.end)
        self._by_proc: dict[str, list[Init]] = defaultdict(list)
        for init in by_end:
            self._by_proc[init.proc].append(init)
        starts = sorted(inits, key=lambda init: init.n)
        self._starts = [init.n for init in starts]
        self._first_end: list[int] = []  # the first end among those that began there or later
        for init in reversed(starts):
            self._first_end.append(min(init.end, self._first_end[-1] if self._first_end else NEVER))
        self._first_end.reverse()

    def fenced_at(self, proc: str, n: int) -> int:
        """When the incarnation that `proc` had at `n` was fenced."""
        own = self._by_proc.get(proc, [])
        at = bisect_left([init.end for init in own], n) - 1
        if at < 0:
            return NEVER
        later = bisect_left(self._starts, own[at].end)
        return self._first_end[later] if later < len(self._first_end) else NEVER


def fencing(ops: Operations, seen: ObservedLog, report: Report) -> None:
    incarnations = {txn_id: Incarnations(inits) for txn_id, inits in ops.inits.items() if len(inits) > 1}
    for txn in ops.txns.values():
        lives = incarnations.get(ops.sessions[txn.proc].txn_id or "")
        if lives is None:
            continue
        fence = lives.fenced_at(txn.proc, txn.begin)
        late = [send for send in txn.sends if send.n > fence]
        for send in late:
            if send.status == OK:
                report.broken("T4", f"{txn.proc} was fenced, and its {send.uid} was taken nevertheless", fence, send.n)
            elif send.uid in seen.seen_committed:
                read = seen.seen_committed[send.uid]
                report.broken("T4", f"{txn.proc} was fenced, and its {send.uid} was read as committed", fence, read)
        if txn.commit is not None and txn.commit > fence and txn.status == OK and (txn.sends or txn.offsets):
            sentence = f"{txn.proc} was fenced, and transaction {txn.txn} was committed nevertheless"
            report.broken("T4", sentence, fence, txn.commit)
