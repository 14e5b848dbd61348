"""P1 to P7 and P10: what is stored and read is what was sent, complete, once and in order.

Pure functions over the operations of a history and the log that it implies; `real_time.py` has P8 and P9, which depend
on time. Called by `verdict.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sim.history.event import FAIL, INFO, OK, READ_COMMITTED, READ_UNCOMMITTED, Event, Record
from sim.history.invariants import Report
from sim.history.observed_log import ObservedLog, reads
from sim.history.operations import Operations, Send


def check(ops: Operations, seen: ObservedLog, report: Report) -> None:
    lost_writes(ops, seen, report)
    inconsistent_offsets(seen, report)
    vanishing_reads(ops, seen, report)
    failed_but_read(ops, seen, report)
    duplicates(ops, seen, report)
    producer_order(ops, seen, report)
    poll_steps(ops, seen, report)
    integrity(ops, report)
    replica_checksums(ops, report)


class FinalContents:
    """The uids in the final reads. The `read_uncommitted` one decides, if there is one."""

    def __init__(self, ops: Operations, seen: ObservedLog) -> None:
        self._ops = ops
        self._seen = seen
        self._uids: dict[tuple[str, str], set[str]] = {
            key: {record.uid for record in final.records if record.uid is not None} for key, final in ops.finals.items()
        }

    def known(self, tp: str) -> bool:
        return (tp, READ_UNCOMMITTED) in self._uids or (tp, READ_COMMITTED) in self._uids

    def lacks(self, tp: str, uid: str) -> bool:
        """Whether a stored message is certainly missing."""
        whole = self._uids.get((tp, READ_UNCOMMITTED))
        if whole is not None:
            return uid not in whole
        committed = self._uids.get((tp, READ_COMMITTED))
        return committed is not None and uid not in committed and uid not in self._seen.hidden

    def may_lack(self, tp: str, off: int | None, key: str | None) -> bool:
        """Whether retention or compaction may have removed it."""
        start = self._ops.log_start(tp)
        if off is None:
            return start > 0
        return off < start or (tp in self._ops.compacted and self._seen.superseded(tp, off, key))


def lost_writes(ops: Operations, seen: ObservedLog, report: Report) -> None:
    contents = FinalContents(ops, seen)
    unread: dict[str, list[Send]] = defaultdict(list)
    for send in ops.sends.values():
        if send.status != OK or send.tp is None or send.order or ops.sessions[send.proc].acks != "all":
            continue
        if not contents.known(send.tp):
            if send.off >= 0 and send.uid not in seen.first_read:
                unread[send.tp].append(send)
            continue
        off = send.off if send.off >= 0 else None
        if contents.lacks(send.tp, send.uid) and not contents.may_lack(send.tp, off, send.key):
            sentence = f"{send.uid} was acknowledged at offset {send.off} of {send.tp} and is not in the final read"
            report.broken("P1", sentence, send.n, send.end)
    if unread:
        _passed_over(ops, seen, unread, report)


def _passed_over(ops: Operations, seen: ObservedLog, unread: dict[str, list[Send]], report: Report) -> None:
    """Without a final read: an acknowledged message that readers read past and that no reader got."""
    spans = _spans_read(ops)
    for tp, sends in unread.items():
        for send in sends:
            for low, high, isolation, n in spans.get(tp, ()):
                if low < send.off < high and not (isolation == READ_COMMITTED and send.uid in seen.hidden):
                    report.broken(
                        "P1",
                        f"{send.uid} was acknowledged at offset {send.off} of {tp}; readers went past it "
                        "and nobody ever got it",
                        send.n,
                        send.end,
                        n,
                    )
                    break


def _spans_read(ops: Operations) -> dict[str, list[tuple[int, int, str, int]]]:
    """By partition: the ranges of offsets that somebody read through without a seek or a new assignment."""
    spans: dict[str, list[tuple[int, int, str, int]]] = defaultdict(list)
    for tp, isolation, steps in stretches(ops):
        spans[tp].append((steps[0][0], steps[-1][0], isolation, steps[-1][1]))
    merged = {}
    for tp, ranges in spans.items():
        ranges.sort(key=lambda span: (span[2], span[0]))
        joined: list[tuple[int, int, str, int]] = []
        for span in ranges:
            if joined and joined[-1][2] == span[2] and span[0] <= joined[-1][1]:
                low, high, isolation, n = joined[-1]
                joined[-1] = (low, max(high, span[1]), isolation, n)
            else:
                joined.append(span)
        merged[tp] = joined
    return merged


def stretches(ops: Operations) -> Iterator[tuple[str, str, list[tuple[int, int]]]]:
    """Each run of reading that nothing interrupts: partition, isolation, (offset, event) in the order of reading."""
    running: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for event in ops.events:
        if event.type != OK:
            continue
        if event.f == "poll":
            for record in event.records or ():
                running.setdefault((event.proc, record.tp), []).append((record.off, event.n))
        elif event.f in ("assign", "revoke", "lost", "seek", "fenced", "close"):
            for key in _interrupted(event, running):
                if (steps := running.pop(key, None)) is not None:
                    yield key[1], ops.isolation(key[0]), steps
    for (proc, tp), steps in running.items():
        yield tp, ops.isolation(proc), steps


def _interrupted(event: Event, running: dict[tuple[str, str], list[tuple[int, int]]]) -> list[tuple[str, str]]:
    if event.tp is not None:
        return [(event.proc, event.tp)]
    if event.offs is not None:
        return [(event.proc, tp) for tp in event.offs]
    return [key for key in running if key[0] == event.proc]


def inconsistent_offsets(seen: ObservedLog, report: Report) -> None:
    for clash in seen.clashes:
        one, other = clash.uids
        report.broken(
            "P2", f"offset {clash.off} of {clash.tp} is {one} for one client and {other} for another", *clash.events
        )


def vanishing_reads(ops: Operations, seen: ObservedLog, report: Report) -> None:
    contents = FinalContents(ops, seen)
    told: set[str] = set()
    for event in ops.polls:
        for record in event.records or ():
            uid = record.uid
            if uid is None or uid in told or not contents.lacks(record.tp, uid):
                continue
            if contents.may_lack(record.tp, record.off, record.key):
                continue
            told.add(uid)
            report.broken(
                "P3",
                f"{uid} was read at offset {record.off} of {record.tp} and is not in the final read",
                event.n,
            )


def failed_but_read(ops: Operations, seen: ObservedLog, report: Report) -> None:
    for send in ops.sends.values():
        if send.status == FAIL and send.uid in seen.first_read:
            n = seen.first_read[send.uid]
            report.broken("P4", f"{send.uid} was refused, and yet it was read", send.n, send.end, n)


def duplicates(ops: Operations, seen: ObservedLog, report: Report) -> None:
    for uid, places in seen.places.items():
        send = ops.sends.get(uid)
        if send is None or send.order or not ops.sessions[send.proc].idempotent:
            continue
        if len(places) > 1 and not ops.is_forgotten(*min(places, key=lambda place: place[1])):
            where = " and ".join(f"offset {off} of {tp}" for tp, off in places)
            events = [seen.log[tp][off][1] for tp, off in places]
            report.broken("P5", f"{uid} of an idempotent producer is stored at {where}", send.n, *events)


def producer_order(ops: Operations, seen: ObservedLog, report: Report) -> None:
    contents = FinalContents(ops, seen)
    last: dict[tuple[str, str], Send] = {}
    absent: dict[tuple[str, str], Send] = {}
    for send in ops.sends.values():
        session = ops.sessions[send.proc]
        if send.tp is None or send.order or not (session.idempotent or (session.in_flight == 1 and send.status == OK)):
            continue
        place = send.proc, send.tp
        off = seen.offset(send.uid)
        if off is None:
            # Certainly absent, if there was a final read, and if the messages before it still exist.
            looked = contents.known(send.tp) and send.tp not in ops.compacted
            if send.status == INFO and looked and (ops.log_start(send.tp) == 0 or place in last):
                absent.setdefault(place, send)
            continue
        before = last.get(place)
        if before is not None and off <= (earlier := seen.offset(before.uid) or 0):
            report.broken(
                "P6",
                f"{send.proc} sent {before.uid} before {send.uid}, and {send.tp} has them at {earlier} and {off}",
                before.n,
                send.n,
            )
        gap = absent.get(place)
        if gap is not None and session.idempotent and gap.epoch is not None and gap.epoch == send.epoch:
            report.broken(
                "P6",
                f"{send.uid} is in {send.tp} and {gap.uid}, sent before it in the same epoch, is not",
                gap.n,
                send.n,
            )
            del absent[place]
        last[place] = send


def poll_steps(ops: Operations, seen: ObservedLog, report: Report) -> None:
    for tp, isolation, steps in stretches(ops):
        dense = seen.dense(tp, isolation)
        last_place, last_off, last_n = None, -1, 0
        for off, n in steps:
            place = dense.place.get(off)
            if place is None:  # it should not have been visible at all; T1 reports that
                continue
            if last_place is not None and place != last_place + 1:
                if place <= last_place:
                    sentence = f"after offset {last_off} of {tp} the reader got {off}: it went back"
                    report.broken("P7", sentence, last_n, n)
                elif skipped := _unexcused(ops, seen, tp, dense.offsets[last_place + 1 : place]):
                    sentence = (
                        f"after offset {last_off} of {tp} the reader got {off} and skipped "
                        f"{len(skipped)} messages, the first at {skipped[0]}"
                    )
                    report.broken("P7", sentence, last_n, n)
            last_place, last_off, last_n = place, off, n


def _unexcused(ops: Operations, seen: ObservedLog, tp: str, skipped: list[int]) -> list[int]:
    start = ops.log_start(tp)
    if tp not in ops.compacted:
        return [off for off in skipped if off >= start]

    def key(off: int) -> str | None:
        send = ops.sends.get(seen.log[tp][off][0])
        return send.key if send is not None else None

    return [off for off in skipped if off >= start and not seen.superseded(tp, off, key(off))]


def integrity(ops: Operations, report: Report) -> None:
    told: set[str | None] = set()
    for n, _, record in reads(ops):
        wrong = _wrong(ops, record)
        if wrong is not None and (record.uid is None or record.uid not in told):
            told.add(record.uid)
            send = ops.sends.get(record.uid or "")
            where = f"offset {record.off} of {record.tp}"
            report.broken("P10", f"{where}: {wrong}", send.n if send else None, n)


def _wrong(ops: Operations, record: Record) -> str | None:
    if record.uid is None:
        return "the payload names no message"
    send = ops.sends.get(record.uid)
    if send is None:
        return f"nobody sent {record.uid}"
    if send.tp is not None and send.tp != record.tp:
        return f"{record.uid} was sent to {send.tp}"
    if send.digest is not None and record.digest is not None and send.digest != record.digest:
        return f"key, value, headers or timestamp of {record.uid} are not those that were sent"
    return None


def replica_checksums(ops: Operations, report: Report) -> None:
    first: dict[tuple[str, int], tuple[int, int]] = {}
    for (tp, replica), batches in ops.batches.items():
        for event in batches:
            details = event.details or {}
            base, crc = details["base"], details.get("crc")
            if crc is None:
                continue
            other, other_crc = first.setdefault((tp, base), (replica, crc))
            if other_crc != crc:
                report.broken(
                    "P10", f"the batch at {base} of {tp} differs between the brokers {other} and {replica}", event.n
                )
