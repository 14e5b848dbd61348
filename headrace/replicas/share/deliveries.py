"""The deliveries of one share partition: which record is with whom, since when, and how often it was handed out.

    AVAILABLE ──acquire──> ACQUIRED ──stage──> STAGED ──stored──> ACKNOWLEDGED (accept), ARCHIVED (reject, gap, or
        ^                     │                   │               released for the last time), AVAILABLE (release)
        └──lock runs out──────┘                   └──the write failed──> what is stored

Pure and synchronous: no clock, no disk, no event loop. `share_partition` owns it, stores what `to_store` says and tells
the outcome. Rules:

- A record is handed out to one member at a time, at most `delivery_limit` times; then it is archived.
- From half of that limit on, fewer records are handed out together, at last one alone, so that a record that kills its
  consumers does not take its neighbours along.
- Members hold at most `max_locks` records together, and a member at most the share that the caller says.
- A staged record's lock cannot run out, and what a lock's end does is stored as an acknowledgement is.
- Locks are measured on monotonic time, passed in.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from math import ceil

from msgspec import Struct, field

from headrace.model.share_state import ACKNOWLEDGED, ARCHIVED, AVAILABLE, NO_START, ShareState, StateBatch
from headrace.replicas.share.acquisition import Acquired, Limits, Span, Taking
from headrace.replicas.share.window import ACQUIRED, STAGED, Window, count_done, done_at_the_front
from headrace.wire.errors import ErrorCode, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_FINAL = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, REJECT: ARCHIVED}
_TICKS = 10  # of a second, in which locks run out
_MOST_STORED = 1 << 20  # offsets that a window may begin with; what is stored of later ones is not believed
_SPAN_LOCKS = 4  # how many times `max_locks` offsets the window may have, most of them done with


class Acknowledgement(Struct, frozen=True):
    """Of the records from `first` to `last`; one type for all of them, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]


class Staged(Struct, frozen=True):
    """Runs of records that are to become something once that is stored: (first, end, state)."""

    runs: list[tuple[int, int, int]] = field(default_factory=list)


class Deliveries:
    def __init__(self, stored: ShareState) -> None:
        self.window = Window(stored.start_offset)
        self.stored_start = stored.start_offset
        self.trimmed_to = NO_START
        """The log begins here; who acknowledges older records has not done anything wrong."""
        self._members: dict[str, int] = {}
        self._free_numbers: list[int] = []
        self._ticks: list[int] = []  # at which locks may run out, a heap
        self._locks: dict[int, tuple[int, int]] = {}  # by tick, where these locks are; the window knows better
        self._unstored: list[tuple[int, int]] = []  # what has changed without a stage
        for batch in stored.batches:
            first = max(batch.first_offset, self.window.base)
            end = min(batch.last_offset + 1, self.window.base + _MOST_STORED)
            if end > first:
                self.window.extend(end)
                self.window.put(first, end, batch.state, batch.delivery_count)
        self.window.advance()

    # --- what others ask --------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.window.base

    @property
    def next_offset(self) -> int:
        """The first record that may be handed out."""
        return self.window.next_available(self.window.base)

    @property
    def held(self) -> int:
        return self.window.held

    def held_by(self, member: str) -> int:
        return self.window.held_by.get(self._members.get(member, 0), 0)

    def is_full(self, limits: Limits) -> bool:
        """Nothing can be handed out, whatever there is."""
        window = self.window
        return window.held >= limits.max_locks or (
            len(window) >= _SPAN_LOCKS * limits.max_locks and window.next_available(window.base) == window.end
        )

    @property
    def next_deadline(self) -> float | None:
        """When a lock may run out; it may have been renewed since."""
        return self._ticks[0] / _TICKS if self._ticks else None

    @property
    def wants_storing(self) -> bool:
        """Something has changed that no acknowledgement stands for."""
        return bool(self._unstored) or self.window.base > self.stored_start

    # --- handing out ------------------------------------------------------------------------------------------------

    def acquire(
        self, member: str, spans: Iterable[Span], now: float, limits: Limits, most: int, *, share: int, strict: bool
    ) -> list[Acquired]:
        """Hand out records of these spans, which follow each other; `strict`: never more than `most`, else whole spans
        until there are as many. The member holds at most `share` after that."""
        window, owner = self.window, self._number(member)
        room = min(limits.max_locks - window.held, share - window.held_by.get(owner, 0))
        taking = Taking(limits, most, room, strict=strict)
        deadline = now + limits.lock_s
        for span in spans:
            first, end = max(span.first, window.base), span.last + 1
            if not span.deliverable:
                self._skip(first, end, limits)
                continue
            if taking.is_over:
                break
            window.extend(min(end, window.base + _SPAN_LOCKS * limits.max_locks))
            for begin, stop, count in window.available(first, min(end, window.end)):
                stop = begin + taking.allows(stop - begin, count + 1)
                if stop > begin:
                    window.acquire(owner, begin, stop, count + 1, deadline)
                    taking.took(begin, stop, count + 1)
                    self._lock(begin, stop, deadline)
                if taking.is_over:
                    break
            taking.end_of_span()
        window.shrink()
        window.advance()
        return taking.acquired

    def _skip(self, first: int, end: int, limits: Limits) -> None:
        """Nobody is to be given these. There may be very many of them, so the window does not grow over all."""
        window = self.window
        window.advance()
        if not len(window) and first <= window.base:
            window.cut(max(end, window.base))
            return
        if first <= window.end:
            window.extend(min(end, window.base + _SPAN_LOCKS * limits.max_locks))
        window.archive(first, min(end, window.end))

    def _lock(self, first: int, end: int, deadline: float) -> None:
        """Look here when the deadline has passed. Locks that end within a tick are looked at together."""
        tick = ceil(deadline * _TICKS)
        known = self._locks.get(tick)
        if known is None:
            heapq.heappush(self._ticks, tick)
            self._locks[tick] = first, end
        else:
            self._locks[tick] = min(first, known[0]), max(end, known[1])

    def _number(self, member: str) -> int:
        number = self._members.get(member)
        if number is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self._members) + 1
            self._members[member] = number
        return number

    # --- acknowledgements -------------------------------------------------------------------------------------------

    def stage(self, member: str, acknowledgements: Sequence[Acknowledgement], now: float, limits: Limits) -> Staged:
        """All of them, or KafkaError and none. Renewed locks count at once; the rest is for `settle`."""
        parts = [part for acknowledgement in self._checked(acknowledgements) for part in _by_type(acknowledgement)]
        owner, window, trimmed = self._members.get(member, 0), self.window, self.trimmed_to
        parts = [(max(first, trimmed), end, kind) for first, end, kind in parts if end > trimmed]
        for first, end, _ in parts:
            if not window.is_held_by(owner, first, end):
                raise KafkaError(
                    ErrorCode.invalid_record_state,
                    f"records {first} to {end - 1} are not all with {member}: their locks have run out, or they were "
                    f"acknowledged already",
                )
        staged = Staged()
        for first, end, kind in parts:
            if kind == RENEW:
                window.renew(first, end, now + limits.lock_s)
                self._lock(first, end, now + limits.lock_s)
                continue
            if kind == RELEASE:
                staged.runs.extend(self._released(first, end, limits))
            else:
                staged.runs.append((first, end, _FINAL[kind]))
            window.stage(first, end)
        return staged

    def _checked(self, acknowledgements: Sequence[Acknowledgement]) -> Sequence[Acknowledgement]:
        after = -1
        for one in acknowledgements:
            size = one.last - one.first + 1
            if one.first <= after or size <= 0:
                raise KafkaError(
                    ErrorCode.invalid_request, "offsets must ascend in the acknowledgements of a partition"
                )
            if len(one.types) not in (1, size) or not all(GAP <= kind <= RENEW for kind in one.types):
                raise KafkaError(
                    ErrorCode.invalid_request, "acknowledge types are one for all records or one for each, from 0 to 4"
                )
            if one.last >= max(self.window.end, self.trimmed_to):
                raise KafkaError(ErrorCode.invalid_request, f"record {one.last} was never handed out")
            after = one.last
        return acknowledgements

    def _released(self, first: int, end: int, limits: Limits) -> Iterable[tuple[int, int, int]]:
        for begin, stop, count in self.window.by_count(first, end):
            yield begin, stop, ARCHIVED if count >= limits.delivery_limit else AVAILABLE

    def settle(self, staged: Staged) -> None:
        """It is stored."""
        window = self.window
        for first, end, state in staged.runs:
            first = max(first, window.base)  # what retention has taken meanwhile stays so
            if end > first:
                window.let_go(first, end, state)
        window.advance()

    def forget(self, staged: Iterable[Staged], stored: ShareState) -> None:
        """The write may have failed; the state was read again: what was staged becomes what is stored of it."""
        window, done_before = self.window, stored.start_offset
        for first, end, _ in (run for stage in staged for run in stage.runs):
            first = max(first, window.base)
            if end <= first:
                continue
            window.let_go(first, end, AVAILABLE)
            if done_before > first:
                window.archive(first, min(end, done_before))
            for batch in stored.batches:
                begin, stop = max(first, batch.first_offset), min(end, batch.last_offset + 1)
                if begin < stop and batch.state != AVAILABLE:
                    window.put(begin, stop, batch.state, batch.delivery_count)
        self.stored_start = stored.start_offset
        window.advance()

    # --- what happens by itself -------------------------------------------------------------------------------------

    def expire(self, now: float, limits: Limits) -> int:
        """Locks that have run out end. How many records that are."""
        expired = 0
        while self._ticks and self._ticks[0] <= now * _TICKS:
            first, end = self._locks.pop(heapq.heappop(self._ticks))
            for begin, stop in self.window.overdue(first, end, now):
                self._release(begin, stop, limits)
                expired += stop - begin
        self.window.advance()
        return expired

    def leave(self, member: str, limits: Limits) -> int:
        """The member's session is over: what it holds may be handed out again. How many records that are."""
        number = self._members.get(member)
        if number is None:
            return 0
        released = 0
        for first, end in self.window.acquired_by(number):
            self._release(first, end, limits)
            released += end - first
        if number not in self.window.held_by:  # else some are staged
            self._free_numbers.append(self._members.pop(member))
        self.window.advance()
        return released

    def _release(self, first: int, end: int, limits: Limits) -> None:
        for begin, stop, state in list(self._released(first, end, limits)):
            self.window.let_go(begin, stop, state)
        self._unstored.append((first, end))

    def trim(self, log_start: int) -> bool:
        """The log begins here. Whether that moves the window."""
        self.trimmed_to = max(self.trimmed_to, log_start)
        if log_start <= self.window.base:
            return False
        self.window.cut(log_start)
        self.window.advance()
        return True

    # --- storing ----------------------------------------------------------------------------------------------------

    def to_store(self, staged: Sequence[Staged]) -> tuple[int, int, list[StateBatch]]:
        """(start offset, how many are done with behind it, changed batches), as if these were settled. Takes what
        has changed by itself along; if the write fails, `store_again` gives it back."""
        window = self.window
        base, states, changed = window.base, window.states(), self._unstored
        self._unstored = []
        for first, end, state in (run for stage in staged for run in stage.runs):
            low, high = max(0, first - base), end - base
            if high > low:
                states[low:high] = bytes([state]) * (high - low)
            changed.append((first, end))
        start = base + done_at_the_front(states)
        batches = list[StateBatch]()
        for first, end in _merged(changed, start, base + len(states)):
            for begin, stop, count in window.by_count(first, end):
                batches.extend(_runs_of(states, base, begin, stop, count))
        return start, count_done(states, start - base), batches

    def store_again(self, batches: Iterable[StateBatch]) -> None:
        """These may not have been stored."""
        self._unstored.extend((batch.first_offset, batch.last_offset + 1) for batch in batches)


def _by_type(one: Acknowledgement) -> Iterable[tuple[int, int, int]]:
    """(first, end, type) of the runs of one type."""
    types = one.types
    if len(types) == 1:
        yield one.first, one.last + 1, types[0]
        return
    begin = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[begin]:
            yield one.first + begin, one.first + at, types[begin]
            begin = at


def _merged(ranges: list[tuple[int, int]], low: int, high: int) -> Iterable[tuple[int, int]]:
    """The ranges in order and apart, within these bounds."""
    if len(ranges) > 1:
        ranges = sorted(ranges)
    last: tuple[int, int] | None = None
    for first, end in ranges:
        first, end = max(first, low), min(end, high)
        if end <= first:
            continue
        if last is None:
            last = first, end
        elif first <= last[1]:
            last = last[0], max(last[1], end)
        else:
            yield last
            last = first, end
    if last is not None:
        yield last


def _runs_of(states: bytearray, base: int, first: int, end: int, count: int) -> Iterable[StateBatch]:
    """Of one delivery count. What somebody holds is stored as available."""
    part = bytes(states[first - base : end - base]).translate(_STORED)
    at = 0
    while at < len(part):
        stop = at + 1
        state = part[at]
        if part.count(state, at) == len(part) - at:
            stop = len(part)
        else:
            while stop < len(part) and part[stop] == state:
                stop += 1
        yield StateBatch(first + at, first + stop - 1, state, count)
        at = stop


_STORED = bytes(AVAILABLE if state in (ACQUIRED, STAGED) else state for state in range(256))
