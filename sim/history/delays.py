"""D1 to D3: a delayed message is delivered not before it is due, soon after, once, and never after its cancel.

A delayed message is a `send` whose `details` say when it is due (docs/checker.md); its acknowledged offset is its id.
It is read at another offset, with its id and due time. `release_order.py` has D4. Called by `verdict.py`.

Invariant: due times are the brokers', whose clocks may be wrong; a check never assumes more than BrokerTime knows. Two
things are exact: within one leader epoch the passing of time does not depend on the wall clock, and the log says what
came first, a cancel or the release.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sim.history.broker_time import BrokerTime
from sim.history.event import FAIL, OK, Record
from sim.history.invariants import Limits, Report
from sim.history.observed_log import ObservedLog, reads
from sim.history.operations import NEVER, Operations, Send
from sim.history.produce_consume import FinalContents
from sim.history.release_order import Epochs, check_order

REFUSAL = "INVALID_RECORD"


class Release(NamedTuple):
    """A delayed message as readers saw it, at one offset."""

    record: Record
    n: int  # the first event that has it


@dataclass(slots=True)
class Delayed:
    send: Send
    releases: dict[int, Release] = field(default_factory=dict)  # by offset
    changes: list[Send] = field(default_factory=list)  # cancels and moves that may have taken effect

    @property
    def cancels(self) -> list[Send]:
        return [change for change in self.changes if "move" not in change.order]

    @property
    def moves(self) -> list[Send]:
        return [change for change in self.changes if "move" in change.order]

    @property
    def repeats(self) -> bool:
        return "cron" in self.send.order


def check(ops: Operations, seen: ObservedLog, limits: Limits, report: Report) -> None:
    delayed = _gather(ops, report)
    if not delayed:
        return
    time, epochs = BrokerTime(ops, limits.clock_error_ms), Epochs(ops)
    contents = FinalContents(ops, seen)
    report.count("delayed messages", len(delayed))
    report.count("releases seen", sum(len(one.releases) for one in delayed.values()))
    delayed = {uid: one for uid, one in delayed.items() if not _stored_again(ops, one)}
    for one in delayed.values():
        for release in one.releases.values():
            _not_early(one, release, time, epochs, report)
            _not_late(ops, one, release, time, limits, report)
        _once(ops, one, report)
        _not_after_cancel(one, report)
        if not one.releases:
            _not_lost(ops, one, contents, time, limits, report)
    _ids(delayed, seen, report)
    _refusals(ops, delayed, time, report)
    check_order(ops, [one for one in delayed.values() if one.releases], time, epochs, report)


def _gather(ops: Operations, report: Report) -> dict[str, Delayed]:
    delayed = {send.uid: Delayed(send) for send in ops.sends.values() if send.delayed}
    for n, _, record in reads(ops):
        send = ops.sends.get(record.uid or "")
        if send is None or not send.order:
            continue
        if send.changes:
            report.broken("D3", f"{send.uid} cancels or moves others, and was delivered itself", send.n, n)
        else:
            delayed[send.uid].releases.setdefault(record.off, Release(record, n))
    by_key: dict[tuple[str | None, str | None], list[Delayed]] = defaultdict(list)
    for one in delayed.values():
        by_key[one.send.tp, one.send.key].append(one)
    for send in ops.sends.values():
        if not send.changes or send.status == FAIL:
            continue
        if "cancel_key" in send.order:
            for one in by_key[send.tp, send.order["cancel_key"]]:
                one.changes.append(send)
        else:
            target = delayed.get(send.order.get("cancel") or send.order.get("move") or "")
            if target is not None:
                target.changes.append(send)
    return delayed


def _stored_again(ops: Operations, one: Delayed) -> bool:
    """Its producer repeated it when nobody knew any more that it was there: it has two ids, and is two messages."""
    ids = {release.record.id for release in one.releases.values() if release.record.id is not None}
    if one.send.status == OK and one.send.off >= 0:
        ids.add(one.send.off)
    return len(ids) > 1 and ops.is_forgotten(one.send.tp, min(ids))


# --- D1, D2 ----------------------------------------------------------------------------------------------------------


def _not_early(one: Delayed, release: Release, time: BrokerTime, epochs: Epochs, report: Report) -> None:
    send, (record, n) = one.send, release
    where = f"{send.uid} was delivered from offset {record.off} of {record.tp}"
    if record.due is None or record.id is None:
        report.broken("D1", f"{where} as if it were not delayed", send.n, n)
        return
    if time.known and time.latest(n) < record.due:
        early_ms = record.due - time.latest(n)
        report.broken("D1", f"{where} at least {early_ms:.0f} ms before it was due", send.n, n)
    if one.moves:
        _due_as_moved(one, release, report)
        return
    asked = send.order
    if "deliver_at" in asked and record.due != asked["deliver_at"]:
        report.broken("D1", f"{where} as due at {record.due}, which is not what was asked for", send.n, n)
    if "delay_ms" not in asked:
        return
    same = epochs.at(send.tp, send.off)
    if same is None or same != epochs.at(send.tp, record.off):
        waited, spread = time.at(n) - time.at(send.n), time.spread_ms
    else:  # one leader, whose time passes as the history's
        waited, spread = time.elapsed_ms(send.n, n), 0
    if waited + spread + time.error_ms < asked["delay_ms"]:
        sentence = f"{where} after {waited:.0f} ms, and its delay is {asked['delay_ms']} ms"
        report.broken("D1", sentence, send.n, n)


def _due_as_moved(one: Delayed, release: Release, report: Report) -> None:
    """Its due time is one of those that it may have had: the last that was acknowledged, or one that is unknown."""
    record, n = release
    if one.repeats:  # it goes on with its expression
        return
    certain = [move for move in one.moves if move.status == OK and 0 <= move.off < record.off]
    asked = [move.order for move in one.moves if move.status != OK]
    asked.append(max(certain, key=lambda move: move.off).order if certain else one.send.order)
    if any("deliver_at" not in order for order in asked):
        return
    if record.due not in [order["deliver_at"] for order in asked]:
        sentence = f"{one.send.uid} was delivered as due at {record.due}, although it had been moved"
        report.broken("D1", sentence, one.send.n, *(move.n for move in one.moves), n)


def _not_late(
    ops: Operations, one: Delayed, release: Release, time: BrokerTime, limits: Limits, report: Report
) -> None:
    due_ms, send = release.record.due, one.send
    if limits.late_within_s is None or due_ms is None or not time.known or send.status != OK or one.changes:
        return
    if any(release.n == final.n for final in ops.finals.values()):  # the checker's own, no delivery to anybody
        return
    ready_ms = max(time.reached(due_ms), time.at(_certain_from(ops, send)), _healed_ms(ops, time))
    late_ms = time.at(release.n) - ready_ms
    if late_ms > limits.late_within_s * 1000 + time.error_ms:
        report.broken("D2", f"{send.uid} was delivered {late_ms:.0f} ms after it could be", send.n, release.n)


def _certain_from(ops: Operations, send: Send) -> int:
    """The event from which on it is certain to be pending; NEVER if there is none."""
    if send.status != OK:
        return NEVER
    if send.txn is None:
        return send.end
    txn = ops.txns[send.txn]
    return max(send.end, txn.end) if txn.status == OK else NEVER


def _healed_ms(ops: Operations, time: BrokerTime) -> float:
    heals = ops.told.get("heal")
    return time.at(heals[-1].n) if heals else 0.0


# --- D3 --------------------------------------------------------------------------------------------------------------


def _once(ops: Operations, one: Delayed, report: Report) -> None:
    send = one.send
    if one.releases and send.txn is not None and ops.txns[send.txn].status == FAIL:
        n = next(iter(one.releases.values())).n
        report.broken("D3", f"{send.uid} was delivered, and its transaction was not committed", send.n, n)
    by_due: dict[int | None, Release] = {}
    for off, release in sorted(one.releases.items()):
        before = by_due.setdefault(release.record.due if one.repeats else None, release)
        if before is not release:
            sentence = f"{send.uid} was delivered twice, from the offsets {before.record.off} and {off} of {send.tp}"
            report.broken("D3", sentence, send.n, before.n, release.n)
        if release.record.id is not None and send.status == OK and send.off not in (-1, release.record.id):
            sentence = f"{send.uid} was acknowledged with the id {send.off} and delivered with {release.record.id}"
            report.broken("D3", sentence, send.end, release.n)


def _not_after_cancel(one: Delayed, report: Report) -> None:
    for cancel in one.cancels:
        if cancel.status != OK or cancel.off < 0:
            continue
        by_key = "cancel_key" in cancel.order
        if by_key and (one.send.txn is not None or not 0 <= one.send.off < cancel.off):
            continue  # it may have been parked, or committed, after that
        for off, release in one.releases.items():
            if off > cancel.off or not (by_key or one.repeats):
                sentence = (
                    f"{one.send.uid} was cancelled at offset {cancel.off} of {cancel.tp}, and delivered from {off}"
                )
                report.broken("D3", sentence, one.send.n, cancel.end, release.n)


def _not_lost(
    ops: Operations, one: Delayed, contents: FinalContents, time: BrokerTime, limits: Limits, report: Report
) -> None:
    send = one.send
    certain = _certain_from(ops, send)
    if certain == NEVER or one.cancels or send.tp is None or ops.sessions[send.proc].acks != "all":
        return
    final_ns = [final.n for final in ops.finals.values() if final.tp == send.tp]
    dues = [_latest_due(order, certain if end is None else end, time) for order, end in _orders(one)]
    if not final_ns or any(due is None for due in dues):
        return
    due_ms = max(due for due in dues if due is not None)
    ready_ms = max(due_ms, time.at(certain), _healed_ms(ops, time))
    if ready_ms + limits.released_within_s * 1000 > time.at(min(final_ns)) or not contents.lacks(send.tp, send.uid):
        return
    if ops.log_start(send.tp) > 0 and not _surely_kept(ops, one, time):
        return
    sentence = f"{send.uid} was acknowledged with the id {send.off} of {send.tp}, it is due, and it was never delivered"
    report.broken("D3", sentence, send.n, send.end)


def _orders(one: Delayed) -> Sequence[tuple[dict[str, object], int | None]]:
    """What may say when it is due, each with the event by which that was certain, if it is not the message's own."""
    return [(one.send.order, None), *((move.order, move.end) for move in one.moves)]


def _latest_due(order: dict[str, object], certain: int, time: BrokerTime) -> float | None:
    """In the right time; None if that is not known."""
    if "deliver_at" in order:
        return time.reached(int(str(order["deliver_at"]))) if time.known else None
    wait_ms = order.get("delay_ms", order.get("period_ms"))
    if certain == NEVER or wait_ms is None:
        return None
    return time.reached(time.at(certain) + time.high_ms + int(str(wait_ms)))


def _earliest_due(send: Send, time: BrokerTime) -> float | None:
    if "deliver_at" in send.order:
        return int(send.order["deliver_at"]) - time.high_ms - time.error_ms if time.known else None
    if "delay_ms" not in send.order:
        return None
    return time.at(send.n) + int(send.order["delay_ms"]) - time.spread_ms - time.error_ms


def _surely_kept(ops: Operations, one: Delayed, time: BrokerTime) -> bool:
    """Whether retention, which has removed something, was switched off before this one could be released."""
    kept = [event.n for event in ops.told.get("kept", ()) if event.tp == one.send.tp]
    earliest = _earliest_due(one.send, time)
    return bool(kept) and earliest is not None and not one.moves and time.at(kept[0]) < earliest


def _ids(delayed: dict[str, Delayed], seen: ObservedLog, report: Report) -> None:
    """An id is an offset that nothing else has."""
    owners: dict[tuple[str | None, int], Send] = {}
    for one in delayed.values():
        send = one.send
        if send.status != OK or send.off < 0:
            continue
        other = owners.setdefault((send.tp, send.off), send)
        if other is not send:
            report.broken("D3", f"{other.uid} and {send.uid} have the same id {send.off}", other.end, send.end)
        there = seen.log.get(send.tp or "", {}).get(send.off)
        if there is not None:
            report.broken("D3", f"the offset {send.off}, the id of {send.uid}, holds {there[0]}", send.end, there[1])


def _refusals(ops: Operations, delayed: dict[str, Delayed], time: BrokerTime, report: Report) -> None:
    """A cancel or a move is refused only if there is nothing pending."""
    for send in ops.sends.values():
        if not send.changes or send.status != FAIL or send.err != REFUSAL:
            continue
        one = delayed.get(send.order.get("cancel") or send.order.get("move") or "")
        if one is None or one.changes or one.send.txn is not None or _certain_from(ops, one.send) > send.n:
            continue
        earliest = _earliest_due(one.send, time)
        if earliest is not None and time.at(send.end) < earliest:
            sentence = f"{send.uid} was refused although {one.send.uid} was pending: it was not due and not cancelled"
            report.broken("D3", sentence, one.send.end, send.n, send.end)
