"""One fault for a good history: each function changes a history that `reference.py` made so that one invariant breaks.

The name begins with the invariant. A fault answers whether it found a place for itself; if not, the history stays as it
was. Histories are changed in place.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from sim.history.event import FAIL, INVOKE, OK, READ_COMMITTED, READ_UNCOMMITTED, Event, Record, merge
from tests.sim.history.story import A, B


class Place:
    """A good history with the questions that faults ask about it."""

    def __init__(self, events: list[Event], rng: random.Random) -> None:
        self.events = events
        self.rng = rng
        self.sent = {event.uid: event for event in events if event.f == "send" and event.type == INVOKE}
        self.acked = {event.uid: event for event in events if event.f == "send" and event.type == OK}
        self.polls = [event for event in events if event.f == "poll" and event.type == OK and event.records]
        self.finals = {(event.tp, (event.details or {})["isolation"]): event for event in events if event.f == "final"}

    def pick(self, candidates: list[Any]) -> Any:
        return self.rng.choice(candidates) if candidates else None

    def of(self, f: str, kind: str = OK, **fields: Any) -> list[Event]:
        return [
            event
            for event in self.events
            if event.f == f and event.type == kind and all(getattr(event, name) == fields[name] for name in fields)
        ]

    def invoke(self, event: Event) -> Event:
        return self.events[event.op or 0]

    def insert(self, after: Event, *new: Event) -> None:
        for number, event in enumerate(new):
            event.t_mono_ns = after.t_mono_ns + 1 + number
        self.events[:] = merge([[*self.events, *new]])

    def polled(self) -> set[str | None]:
        return {record.uid for event in self.polls for record in event.records or ()}

    def committed_txns(self) -> set[str | None]:
        return {event.txn for event in self.of("end") if (self.invoke(event).details or {})["commit"]}

    def forget(self, uid: str | None, *isolations: str) -> None:
        for (_, isolation), event in self.finals.items():
            if isolation in isolations:
                event.records = [record for record in event.records or () if record.uid != uid]


def p1_acknowledged_message_vanishes(place: Place) -> bool:
    uid = place.pick(sorted(place.acked))
    if uid is None:
        return False
    place.forget(uid, READ_COMMITTED, READ_UNCOMMITTED)
    return True


def p3_message_vanishes_after_it_was_read(place: Place) -> bool:
    uid = place.pick(sorted(place.polled()))
    if uid is None:
        return False
    place.forget(uid, READ_COMMITTED, READ_UNCOMMITTED)
    return True


def p2_reader_gets_another_message(place: Place) -> bool:
    event = place.pick([event for event in place.polls if len(event.records) > 1])
    if event is None:
        return False
    first, second = event.records[:2]
    event.records[:2] = [first._replace(uid=second.uid), second._replace(uid=first.uid)]
    return True


def p4_read_message_was_refused(place: Place) -> bool:
    event = place.pick([place.acked[uid] for uid in sorted(place.polled() & place.acked.keys())])
    if event is None:
        return False
    event.type, event.off = FAIL, None
    return True


def p5_message_stands_twice(place: Place) -> bool:
    event = place.pick([event for event in place.finals.values() if event.records])
    if event is None:
        return False
    event.records.append(place.pick(event.records)._replace(off=9999))
    return True


def p6_messages_stand_in_the_wrong_order(place: Place) -> bool:
    pairs = defaultdict(list)
    for event in place.acked.values():
        if event.txn is None:
            pairs[event.proc, event.tp].append(event)
    one, other = (place.pick([sends[:2] for sends in pairs.values() if len(sends) > 1])) or (None, None)
    if one is None or other is None:
        return False
    swap = {one.uid: other.uid, other.uid: one.uid}
    one.off, other.off = other.off, one.off
    for event in (*place.polls, *place.finals.values()):
        event.records = [
            record._replace(uid=swap[record.uid], digest=f"sha-{swap[record.uid]}") if record.uid in swap else record
            for record in event.records or ()
        ]
    return True


def p7_poll_leaves_one_out(place: Place) -> bool:
    event = place.pick([event for event in place.polls if len(event.records) > 2])
    if event is None:
        return False
    del event.records[1]
    return True


def p7_poll_comes_again(place: Place) -> bool:
    event = place.pick(place.polls)
    if event is None:
        return False
    event.records.append(event.records[-1])
    return True


def p8_end_goes_down(place: Place) -> bool:
    answers = place.of("list_offsets", proc="all")
    later = [
        (one, other)
        for one in answers
        for other in answers
        if one.n < (other.op or 0) and one.tp == other.tp and (one.off or 0) > 0
    ]
    one, other = place.pick(later) or (None, None)
    if one is None or other is None:
        return False
    other.off = (one.off or 0) - 1
    return True


def p9_never_delivered(place: Place) -> bool:
    watched = {record.tp for event in place.polls for record in event.records or ()}
    unseen = [
        event
        for event in place.acked.values()
        if event.uid not in place.polled() and event.tp in watched and event.txn is None
    ]
    if not unseen:
        return False
    last = place.events[-1]
    heal = Event(last.n + 1, last.t_mono_ns + 1, "faults", OK, "heal")
    much_later = Event(last.n + 2, last.t_mono_ns + 100 * 10**9, "faults", OK, "sleep")
    place.events += [heal, much_later]
    return True


def p10_contents_change(place: Place) -> bool:
    event = place.pick(place.polls)
    if event is None:
        return False
    at = place.rng.randrange(len(event.records))
    event.records[at] = event.records[at]._replace(digest="something else")
    return True


def p10_nobody_sent_it(place: Place) -> bool:
    final = place.finals[A, READ_UNCOMMITTED]
    assert final.records is not None
    final.records.append(Record(A, 9999, "ghost"))
    return True


def g1_second_owner(place: Place) -> bool:
    event = place.pick(place.of("assign", group="g"))
    if event is None:
        return False
    other = "c" if event.proc == "d" else "d"
    place.insert(event, Event(10**6, 0, other, OK, "assign", group="g", offs=dict(event.offs), epoch=event.epoch))
    return True


def g2_stale_offset(place: Place) -> bool:
    found = []
    for fetch in place.of("committed", group="g"):
        ((tp, _),) = (fetch.offs or {}).items()
        commits = [event for event in place.of("commit", group="g") if tp in (place.invoke(event).offs or {})]
        before = [event for event in commits if event.n < (fetch.op or 0)]
        found += [(fetch, tp, old) for old in before for new in before if old.n < (new.op or 0)]
    fetch, tp, old = place.pick(found) or (None, None, None)
    if fetch is None or old is None:
        return False
    fetch.offs, fetch.metas = place.invoke(old).offs, place.invoke(old).metas
    return True


def g3_commit_beyond_the_delivered(place: Place) -> bool:
    delivered: dict[str, int] = {}
    for event in place.polls:
        if event.proc in ("c", "d"):
            for record in event.records or ():
                delivered.setdefault(record.uid or "", event.n)
    found = []
    for event in place.of("commit", group="g"):
        ((tp, _),) = (place.invoke(event).offs or {}).items()
        final = place.finals[tp, READ_COMMITTED].records or ()
        if any(delivered.get(record.uid or "", 1 << 60) > (event.op or 0) for record in final):
            found.append((event, tp))
    event, tp = place.pick(found) or (None, None)
    if event is None:
        return False
    place.invoke(event).offs = {tp: 9999}
    return True


def g4_new_owner_begins_too_late(place: Place) -> bool:
    found = []
    for assign in place.of("assign", group="g"):
        for tp in assign.offs or {}:
            confirmed = [e for e in place.of("commit", group="g") if e.n < assign.n and tp in place.invoke(e).offs]
            revoked = [e.n for e in place.of("revoke", proc=assign.proc) if e.n > assign.n]
            polls = [
                event
                for event in place.polls
                if event.proc == assign.proc
                and assign.n < event.n < min(revoked, default=1 << 60)
                and event.records[0].tp == tp
            ]
            if confirmed and polls and len(polls[0].records) > 1:
                found.append(polls[0])
    event = place.pick(found)
    if event is None:
        return False
    before, later = event.records[-2].off, event.records[-1].off
    commits = [off or 0 for other in place.of("commit", INVOKE) for off in (other.offs or {}).values()]
    if any(before < off <= later for off in commits):  # somebody may be about to commit the later place
        return False
    del event.records[:-1]
    return True


def g5_forgotten(place: Place) -> bool:
    found = []
    for fetch in place.of("committed", group="g"):
        ((tp, _),) = (fetch.offs or {}).items()
        if any(tp in place.invoke(e).offs for e in place.of("commit", group="g") if e.n < (fetch.op or 0)):
            found.append((fetch, tp))
    fetch, tp = place.pick(found) or (None, None)
    if fetch is None:
        return False
    fetch.offs, fetch.metas = {tp: -1}, {tp: None}
    return True


def g6_old_member_commits(place: Place) -> bool:
    event = place.pick(place.of("commit", group="g"))
    if event is None:
        return False
    for part in (event, place.invoke(event)):
        part.proc, part.epoch = "c" if part.proc == "d" else "d", 0
    return True


def g7_generations_without_reason(place: Place) -> bool:
    event = place.pick(place.of("assign", group="g"))
    if event is None:
        return False
    event.epoch += 100
    return True


def t1_half_a_transaction(place: Place) -> bool:
    committed = place.committed_txns()
    event = place.pick([event for event in place.acked.values() if event.txn in committed and event.txn is not None])
    if event is None:
        return False
    place.forget(event.uid, READ_COMMITTED)
    return True


def t1_aborted_message_is_read(place: Place) -> bool:
    aborts = {event.txn for event in place.events if event.f == "end" and event.type == INVOKE}
    aborts -= {e.txn for e in place.events if e.f == "end" and e.type == INVOKE and (e.details or {})["commit"]}
    event = place.pick([event for event in place.acked.values() if event.txn in aborts])
    if event is None:
        return False
    final = place.finals[B, READ_COMMITTED]
    assert final.records is not None
    final.records.append(Record(B, event.off or 0, event.uid))
    return True


def t2_read_before_the_commit(place: Place) -> bool:
    committed = place.committed_txns()
    event = place.pick([event for event in place.acked.values() if event.txn in committed and event.txn is not None])
    if event is None:
        return False
    read = [Record(B, event.off or 0, event.uid)]
    opened = Event(10**6, 0, "hasty", OK, "open", details={"isolation": READ_COMMITTED})
    begun = Event(10**6 + 1, 0, "hasty", INVOKE, "poll")
    place.insert(event, opened, begun, Event(10**6 + 2, 0, "hasty", OK, "poll", op=10**6 + 1, records=read))
    return True


def t3_two_outputs_of_one_input(place: Place) -> bool:
    final = place.finals[B, READ_COMMITTED]
    outputs = [record for record in final.records or () if record.src is not None]
    if len(outputs) < 2:
        return False
    one, other = place.rng.sample(outputs, 2)
    assert final.records is not None
    final.records[final.records.index(one)] = one._replace(src=other.src)
    return True


def t4_fenced_producer_sends(place: Place) -> bool:
    fenced = []
    for event in place.of("send", FAIL, err="PRODUCER_FENCED"):
        inits = [init for init in place.of("init") if init.proc != event.proc and init.n < (event.op or 0)]
        own = place.of("init", proc=event.proc)
        if any((init.op or 0) > own[0].n for init in inits):
            fenced.append(event)
    event = place.pick(fenced)
    if event is None:
        return False
    event.type, event.off, event.err = OK, 9999, None
    return True


def t5_marker_is_missing(place: Place) -> bool:
    markers = [event for event in place.of("batch") if (event.details or {}).get("control")]
    if len(markers) < 2:
        return False
    place.events.remove(markers[0])  # what follows finds the range still open
    return True


def t5_marker_stands_twice(place: Place) -> bool:
    marker = place.pick([event for event in place.of("batch") if (event.details or {}).get("control")])
    if marker is None:
        return False
    place.insert(marker, Event(10**6, 0, "scan", OK, "batch", tp=marker.tp, details=dict(marker.details)))
    return True


def t6_sequence_jumps(place: Place) -> bool:
    batch = place.pick([event for event in place.of("batch") if (event.details or {})["seq"] >= 0])
    if batch is None:
        return False
    batch.details["seq"] += 1
    return True


def t7_reads_from_the_future(place: Place) -> bool:
    committed = place.committed_txns()
    begun = {event.txn: event.n for event in place.of("begin")}
    found = [
        (poll, send)
        for poll in place.polls
        if poll.txn in committed and poll.txn is not None
        for send in place.acked.values()
        if send.txn in committed
        and send.txn is not None
        and begun[send.txn] > max(event.n for event in place.of("end", txn=poll.txn))
    ]
    poll, send = place.pick(found) or (None, None)
    if poll is None or send is None:
        return False
    poll.records.append(Record(B, send.off, send.uid))
    return True


def t8_abort_is_not_in_the_index(place: Place) -> bool:
    event = place.pick([event for event in place.of("aborted") if (event.details or {})["aborted"]])
    if event is None:
        return False
    event.details["aborted"].pop()
    return True


def released(place: Place) -> dict[str, list[Record]]:
    """The delayed messages in the final read of the one who sees everything, by uid."""
    found = defaultdict(list)
    for record in place.finals[A, READ_UNCOMMITTED].records or ():
        if record.due is not None and record.uid is not None:
            found[record.uid].append(record)
    return found


def d1_released_a_minute_early(place: Place) -> bool:
    uid = place.pick(sorted(released(place).keys() & place.polled()))
    if uid is None:
        return False
    for event in (*place.polls, *place.finals.values()):
        event.records = [
            record._replace(due=(record.due or 0) + 60_000) if record.uid == uid else record
            for record in event.records or ()
        ]
    return True


def untouched(place: Place) -> set[str]:
    """Acknowledged delayed messages that no cancel names."""
    orders = [event.details or {} for event in place.sent.values()]
    keys = {order.get("cancel_key") for order in orders}
    uids = {order.get("cancel") for order in orders}
    return {
        uid
        for uid in released(place).keys() & place.acked.keys()
        if uid not in uids and place.sent[uid].key not in keys
    }


def d2_delivered_a_minute_late(place: Place) -> bool:
    delayed = untouched(place) & place.polled()
    if not delayed:
        return False
    first = min(event.n for event in place.polls if any(record.uid in delayed for record in event.records or ()))
    for event in place.events[first:]:
        event.t_mono_ns += 200 * 10**9
    return True


def d3_delayed_message_is_lost(place: Place) -> bool:
    uid = place.pick(sorted(untouched(place)))
    if uid is None:
        return False
    place.forget(uid, READ_COMMITTED, READ_UNCOMMITTED)
    for event in place.polls:
        event.records = [record for record in event.records or () if record.uid != uid]
    return True


def d3_delivered_after_its_cancel(place: Place) -> bool:
    cancels = {(event.details or {}).get("cancel"): uid for uid, event in place.sent.items()}
    uid = place.pick([uid for uid in sorted(place.acked.keys() & cancels.keys()) if cancels[uid] in place.acked])
    if uid is None:
        return False
    final, due = place.finals[A, READ_UNCOMMITTED], place.events[-1].t_mono_ns // 10**6
    assert final.records is not None
    final.records.append(Record(A, 9999, uid, f"sha-{uid}", due=due, id=place.acked[uid].off))
    return True


def d4_released_in_the_wrong_order(place: Place) -> bool:
    dues = {uid: records[0] for uid, records in released(place).items() if uid in place.acked}
    pairs = [
        (one, other)
        for uid in sorted(untouched(place))
        for other in dues.values()
        if (one := dues[uid]).off < other.off
        and place.acked[uid].t_mono_ns / 10**6 + 10 < (other.due or 0)
        and (one.due, one.id) < (other.due, other.id)
    ]
    one, other = place.pick(pairs) or (None, None)
    if one is None or other is None:
        return False
    swap = {one.uid: other.off, other.uid: one.off}
    for event in (*place.polls, *place.finals.values()):
        event.records = [record._replace(off=swap.get(record.uid, record.off)) for record in event.records or ()]
    return True
