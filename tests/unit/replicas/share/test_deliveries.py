"""The deliveries of a share partition, against a model with one entry for each record, and rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headrace.coordinators.shares.batches import Batches, put
from headrace.model.share_state import ACKNOWLEDGED, ARCHIVED, AVAILABLE, ShareState, StateBatch
from headrace.replicas.share.acquisition import Acquired, Limits, Span, portions, throttled
from headrace.replicas.share.deliveries import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Deliveries,
    Staged,
)
from headrace.replicas.share.window import ACQUIRED, STAGED
from headrace.wire.errors import ErrorCode, KafkaError

LIMITS = Limits(lock_s=10, delivery_limit=4, max_locks=9)
MEMBERS = ("ann", "bob", "cid")
LOG_END = 30
DONE = (ACKNOWLEDGED, ARCHIVED)


class Record:
    """What the model knows of one."""

    def __init__(self) -> None:
        self.state = AVAILABLE
        self.count = 0
        self.owner = ""
        self.deadline = 0
        self.becomes = AVAILABLE


class Store:
    """What is stored of the share partition."""

    def __init__(self) -> None:
        self.start = 0
        self.batches: Batches = []

    def write(self, start: int, batches: list[Any]) -> None:
        self.start = max(self.start, start)
        put(self.batches, batches, self.start)

    def state(self) -> ShareState:
        return ShareState(1, 1, self.start, -1, tuple(self.batches))

    def of(self, offset: int) -> tuple[int, int]:
        if offset < self.start:
            return ARCHIVED, 0
        for batch in self.batches:
            if batch.first_offset <= offset <= batch.last_offset:
                return batch.state, batch.delivery_count
        return AVAILABLE, 0


class DeliveryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.deliveries = Deliveries(self.store.state())
        self.records = [Record() for _ in range(LOG_END)]
        self.log_start = 0
        self.now = 0
        self.waiting: list[tuple[Staged, list[int]]] = []
        self.writing: tuple[list[tuple[Staged, list[int]]], Any] | None = None
        self.confirmed: set[int] = set()  # accepted, and told so

    def base(self) -> int:
        return next((at for at, record in enumerate(self.records) if record.state not in DONE), LOG_END)

    # --- handing out ------------------------------------------------------------------------------------------------

    @rule(
        member=st.sampled_from(MEMBERS),
        most=st.integers(1, 8),
        share=st.integers(1, 9),
        strict=st.booleans(),
        cuts=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=5),
    )
    def acquire(self, member: str, most: int, share: int, strict: bool, cuts: list[tuple[int, int]]) -> None:
        first, spans = self.deliveries.next_offset, []
        for size, kind in cuts:
            if first < LOG_END:
                last = min(first + size, LOG_END) - 1
                spans.append(Span(first, last, kind != 0))
                first = last + 1
        expected = self.expect(member, spans, most, share, strict)
        got = self.deliveries.acquire(member, spans, self.now, LIMITS, most, share=share, strict=strict)
        assert [(at, one.count) for one in got for at in range(one.first, one.last + 1)] == expected
        assert not self.confirmed & {at for at, _ in expected}, "delivered after it was accepted"
        if strict:
            assert len(expected) <= most

    def expect(self, member: str, spans: list[Span], most: int, share: int, strict: bool) -> list[tuple[int, int]]:
        held = [record for record in self.records if record.state in (ACQUIRED, STAGED)]
        room = min(LIMITS.max_locks - len(held), share - sum(record.owner == member for record in held))
        room = min(room, most) if strict else room
        taken: list[tuple[int, int]] = []
        over = room <= 0
        for span in spans:
            if not span.deliverable:
                for at in range(span.first, span.last + 1):
                    if self.records[at].state == AVAILABLE:
                        self.records[at].state = ARCHIVED
                continue
            if over:
                break
            together = LOG_END
            before = -1
            for at in range(span.first, span.last + 1):
                record = self.records[at]
                if record.state != AVAILABLE:
                    if together < LOG_END and before >= 0:
                        over = True
                        break
                    continue
                limit = throttled(record.count + 1, LIMITS.delivery_limit, most)
                if together < LOG_END and (record.count != before or len(taken) >= together):
                    over = True
                elif limit is not None and together == LOG_END:
                    if taken:
                        over = True
                    together, before = limit, record.count
                if over or len(taken) >= room:
                    over = True
                    break
                record.state, record.owner, record.count = ACQUIRED, member, record.count + 1
                record.deadline = self.now + 10
                taken.append((at, record.count))
            over = over or together < LOG_END or len(taken) >= min(most, room)
        return taken

    # --- acknowledging ----------------------------------------------------------------------------------------------

    @rule(
        member=st.sampled_from(MEMBERS),
        first=st.integers(0, LOG_END - 1),
        kinds=st.lists(st.sampled_from([GAP, ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]), min_size=1, max_size=6),
        one_for_all=st.booleans(),
    )
    def acknowledge(self, member: str, first: int, kinds: list[int], one_for_all: bool) -> None:
        last = first + len(kinds) - 1
        if one_for_all:
            kinds = kinds[:1] * len(kinds)
        sent = Acknowledgement(first, last, tuple(kinds[:1]) if one_for_all else tuple(kinds))
        told = range(max(first, self.log_start if self.deliveries.trimmed_to >= 0 else 0), last + 1)
        right = last < LOG_END and all(
            self.records[at].state == ACQUIRED and self.records[at].owner == member for at in told
        )
        if not right:
            with pytest.raises(KafkaError):
                self.deliveries.stage(member, [sent], self.now, LIMITS)
            return
        staged = self.deliveries.stage(member, [sent], self.now, LIMITS)
        offsets = []
        for at in told:
            record, kind = self.records[at], kinds[at - first]
            if kind == RENEW:
                record.deadline = self.now + 10
                continue
            again = AVAILABLE if record.count < LIMITS.delivery_limit else ARCHIVED
            record.becomes = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: again, REJECT: ARCHIVED}[kind]
            record.state = STAGED
            offsets.append(at)
        self.waiting.append((staged, offsets))

    @precondition(lambda self: self.writing is None)
    @rule()
    def begin_to_write(self) -> None:
        taken, self.waiting = self.waiting, []
        start, done, batches = self.deliveries.to_store([staged for staged, _ in taken])
        states = [
            next((r.becomes for s, offsets in taken if at in offsets), r.state) if r.state == STAGED else r.state
            for at, r in enumerate(self.records)
        ]
        behind = [state in DONE for state in states[start:]]
        assert all(state in DONE for state in states[:start])
        assert not behind or not behind[0] or start >= self.deliveries.window.end
        assert done == sum(behind[: max(0, self.deliveries.window.end - start)])
        self.writing = taken, (start, batches)

    @precondition(lambda self: self.writing is not None)
    @rule(stored=st.booleans(), told=st.booleans())
    def end_of_write(self, stored: bool, told: bool) -> None:
        assert self.writing is not None
        (taken, (start, batches)), self.writing = self.writing, None
        if stored:
            self.store.write(start, batches)
        if stored and told:
            self.deliveries.stored_start = start
            for staged, offsets in taken:
                self.deliveries.settle(staged)
                for at in offsets:
                    record = self.records[at]
                    if record.state == STAGED:
                        record.state = record.becomes
                        self.confirmed |= {at} if record.becomes == ACKNOWLEDGED else set()
            return
        self.deliveries.store_again(batches)
        self.deliveries.forget([staged for staged, _ in taken], self.store.state())
        for at in (at for _, offsets in taken for at in offsets):
            record = self.records[at]
            if record.state == STAGED:
                record.state, count = self.store.of(at)
                if record.state == AVAILABLE and count > record.count:
                    record.count = count

    # --- what else happens ------------------------------------------------------------------------------------------

    @rule(seconds=st.integers(1, 8))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        self.deliveries.expire(self.now, LIMITS)
        for record in self.records:
            if record.state == ACQUIRED and record.deadline <= self.now:
                self.release(record)

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self.deliveries.leave(member, LIMITS)
        for record in self.records:
            if record.state == ACQUIRED and record.owner == member:
                self.release(record)

    def release(self, record: Record) -> None:
        record.state = AVAILABLE if record.count < LIMITS.delivery_limit else ARCHIVED

    @rule(more=st.integers(1, 4))
    def retention(self, more: int) -> None:
        start = min(LOG_END - 1, self.log_start + more)
        self.log_start = start
        if not self.deliveries.trim(start):
            return
        for record in self.records[:start]:
            record.state = ARCHIVED

    @rule()
    def new_leader(self) -> None:
        self.waiting, self.writing = [], None
        self.deliveries = Deliveries(self.store.state())
        for at, record in enumerate(self.records):
            record.state, record.count = self.store.of(at)

    # --- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def both_agree(self) -> None:
        window = self.deliveries.window
        assert window.base <= self.base()
        for at in range(window.base, window.end):
            record = self.records[at]
            assert window.state(at) == record.state, at
            if record.state in (AVAILABLE, ACQUIRED):
                assert window.count(at) == record.count, at
        for at in range(window.end, LOG_END):
            assert self.records[at].state == AVAILABLE or at < self.deliveries.trimmed_to, at
        held = [record.owner for record in self.records if record.state in (ACQUIRED, STAGED)]
        assert window.held == len(held) <= LIMITS.max_locks
        assert {member: self.deliveries.held_by(member) for member in MEMBERS} == {m: held.count(m) for m in MEMBERS}

    @invariant()
    def nothing_that_was_accepted_comes_back(self) -> None:
        for at in self.confirmed:
            assert self.records[at].state in DONE


DeliveryMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestDeliveries = DeliveryMachine.TestCase


def play_deliveries() -> None:
    """The same examples each time; the first failure is enough, it is not made smaller."""
    same = settings(max_examples=25, stateful_step_count=50, deadline=None, derandomize=True, database=None)
    run_state_machine_as_test(DeliveryMachine, settings=settings(same, phases=[Phase.generate]))


# --- rule by rule -----------------------------------------------------------------------------------------------------


def fresh(start: int = 0) -> Deliveries:
    return Deliveries(ShareState(1, 1, start))


def take(deliveries: Deliveries, member: str, first: int, last: int, **other: Any) -> list[tuple[int, int, int]]:
    limits, most, strict = other.get("limits", LIMITS), other.get("most", 100), other.get("strict", False)
    share = other.get("share", limits.max_locks)
    got = deliveries.acquire(member, [Span(first, last)], other.get("now", 0), limits, most, share=share, strict=strict)
    return [(one.first, one.last, one.count) for one in got]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (2, [None, 1]),
        (3, [None, 50, 1]),
        (5, [None, None, 50, 25, 1]),
        (10, [None, None, None, None, 50, 25, 12, 6, 3, 1]),
    ],
)
def test_deliveries_shrink_by_halves_until_a_record_is_alone(limit: int, expected: list[int | None]) -> None:
    assert [throttled(count, limit, 100) for count in range(1, limit + 1)] == expected


def test_a_record_that_kills_its_consumers_does_not_take_its_neighbours_along() -> None:
    deliveries, limits, now = fresh(), Limits(lock_s=1, delivery_limit=5, max_locks=100), 0
    poison, handled, rounds = 6, set[int](), 0
    while deliveries.start_offset < 10:
        rounds += 1
        assert rounds < 60
        got = deliveries.acquire("ann", [Span(0, 9)], now, limits, 8, share=100, strict=False)
        for one in got:
            if one.first <= poison <= one.last:
                continue  # it takes its consumer down with it, and the locks run out
            staged = deliveries.stage("ann", [Acknowledgement(one.first, one.last, (ACCEPT,))], now, limits)
            deliveries.settle(staged)
            handled |= set(range(one.first, one.last + 1))
        now += 2
        deliveries.expire(now, limits)
    assert handled == set(range(10)) - {poison}


def test_a_large_hole_does_not_fill_the_memory() -> None:
    deliveries = fresh()
    assert take(deliveries, "ann", 0, 2) == [(0, 2, 1)]
    deliveries.acquire("bob", [Span(3, 10**9, False), Span(10**9 + 1, 10**9 + 3)], 0, LIMITS, 9, share=9, strict=False)
    assert len(deliveries.window) <= 4 * LIMITS.max_locks
    deliveries.settle(deliveries.stage("ann", [Acknowledgement(0, 2, (ACCEPT,))], 0, LIMITS))
    assert len(deliveries.window) == 0
    again = [Span(deliveries.next_offset, 10**9, False), Span(10**9 + 1, 10**9 + 3)]
    got = deliveries.acquire("bob", again, 0, LIMITS, 9, share=9, strict=False)
    assert [(one.first, one.last) for one in got] == [(10**9 + 1, 10**9 + 3)]
    assert deliveries.start_offset == 10**9 + 1


def test_a_stored_batch_without_end_does_not_fill_the_memory() -> None:
    deliveries = Deliveries(ShareState(1, 1, 5, -1, (StateBatch(6, 1 << 60, ARCHIVED, 1),)))
    assert len(deliveries.window) == 1 << 20
    assert deliveries.next_offset == 5


def test_one_slow_record_does_not_stop_the_others_until_the_window_is_full() -> None:
    deliveries, at = fresh(), 0
    while not deliveries.is_full(LIMITS):
        (got,) = take(deliveries, "ann", at, at, share=9)
        at += 1
        if got[0]:
            deliveries.settle(deliveries.stage("ann", [Acknowledgement(got[0], got[1], (ACCEPT,))], 0, LIMITS))
        assert at <= 4 * LIMITS.max_locks
    assert at == 4 * LIMITS.max_locks
    assert take(deliveries, "ann", at, at) == []
    deliveries.settle(deliveries.stage("ann", [Acknowledgement(0, 0, (ACCEPT,))], 0, LIMITS))
    assert (deliveries.start_offset, deliveries.is_full(LIMITS)) == (at, False)


def test_soft_limits_take_whole_batches_and_strict_ones_do_not() -> None:
    spans = [Span(0, 3), Span(4, 7)]
    for strict, most, expected in ((False, 2, 4), (False, 5, 8), (True, 2, 2), (True, 5, 5)):
        got = fresh().acquire("ann", spans, 0, LIMITS, most, share=9, strict=strict)
        assert sum(one.last - one.first + 1 for one in got) == expected


def test_portions_are_of_the_wanted_size_but_for_batches_that_are_larger() -> None:
    pieces = [Acquired(0, 3, 1), Acquired(4, 7, 1), Acquired(8, 11, 1), Acquired(12, 13, 2), Acquired(20, 21, 2)]
    assert [(one.first, one.last) for one in portions(pieces, 8)] == [(0, 7), (8, 11), (12, 13), (20, 21)]
    assert [(one.first, one.last) for one in portions(pieces, 1)][:2] == [(0, 3), (4, 7)]


def test_only_who_holds_a_record_acknowledges_it() -> None:
    deliveries = fresh()
    take(deliveries, "ann", 0, 4, share=3)
    take(deliveries, "bob", 0, 4, share=2)
    for member, first, last in (("bob", 0, 0), ("ann", 3, 3), ("ann", 0, 4), ("cid", 0, 0)):
        with pytest.raises(KafkaError) as refusal:
            deliveries.stage(member, [Acknowledgement(first, last, (ACCEPT,))], 0, LIMITS)
        assert refusal.value.code is ErrorCode.invalid_record_state
    assert deliveries.stage("bob", [Acknowledgement(3, 4, (ACCEPT,))], 0, LIMITS).runs == [(3, 5, ACKNOWLEDGED)]


WRONG = [
    [Acknowledgement(0, 2, (ACCEPT, ACCEPT))],
    [Acknowledgement(0, 2, (5,))],
    [Acknowledgement(0, 2, ())],
    [Acknowledgement(2, 1, (ACCEPT,))],
    [Acknowledgement(2, 3, (ACCEPT,)), Acknowledgement(0, 1, (ACCEPT,))],
    [Acknowledgement(0, 2, (ACCEPT,)), Acknowledgement(2, 3, (ACCEPT,))],
    [Acknowledgement(3, 5, (ACCEPT,))],
]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_acknowledgement_that_makes_no_sense_is_an_invalid_request(wrong: list[Acknowledgement]) -> None:
    deliveries = fresh()
    take(deliveries, "ann", 0, 4)
    with pytest.raises(KafkaError) as refusal:
        deliveries.stage("ann", wrong, 0, LIMITS)
    assert refusal.value.code is ErrorCode.invalid_request
    assert deliveries.window.of_state(ACQUIRED, 0, 5) == [(0, 5)]


def play_wrong_acknowledgements() -> None:
    for wrong in WRONG:
        test_an_acknowledgement_that_makes_no_sense_is_an_invalid_request(wrong)
