"""A dense window over the records of a share partition: state, delivery count, owner and lock deadline by offset.

The window begins at the share partition's start offset, before which everything is done with, and ends behind the last
record that was ever handed out, a few thousand offsets later. There is one entry for each offset in each of four
arrays, and no object per record: what happens to a run of records is an assignment to a slice.

Owned by `deliveries`, which has the rules. Ranges are half open, [first, end), in offsets. Invariants: an entry is
owned only while it is ACQUIRED or STAGED, and `held` counts those, `held_by` by owner.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import groupby

from headrace.model.share_state import ACKNOWLEDGED, ARCHIVED, AVAILABLE

ACQUIRED, STAGED = 1, 3
"""With a member; and acknowledged by it, but not yet stored: until then it can neither time out nor be handed out."""
MOST_DELIVERIES = 255  # that are counted
_NOBODY = b"\0\0"
_DONE = re.compile(b"[\\x02\\x04]*")
_OF_STATE = [re.compile(re.escape(bytes([state])) + b"+") for state in range(ARCHIVED + 1)]

Run = tuple[int, int, int]


class Window:
    __slots__ = ("_counts", "_deadlines", "_owners", "_states", "base", "held", "held_by")

    def __init__(self, base: int) -> None:
        self.base = base
        self.held = 0
        self.held_by: dict[int, int] = {}
        self._states = bytearray()
        self._counts = bytearray()
        self._owners = bytearray()  # two bytes for each
        self._deadlines = array("d")

    @property
    def end(self) -> int:
        return self.base + len(self._states)

    def __len__(self) -> int:
        return len(self._states)

    # --- looking ----------------------------------------------------------------------------------------------------

    def state(self, offset: int) -> int:
        return self._states[offset - self.base]

    def count(self, offset: int) -> int:
        return self._counts[offset - self.base]

    def next_available(self, offset: int) -> int:
        """The first such offset from this one on, or the end."""
        found = self._states.find(AVAILABLE, max(0, offset - self.base))
        return self.end if found < 0 else self.base + found

    def available(self, first: int, end: int) -> Iterator[Run]:
        """Runs of available records with the same delivery count: (first, end, count)."""
        for begin, stop in self.of_state(AVAILABLE, first, end):
            yield from self.by_count(begin, stop)

    def of_state(self, state: int, first: int, end: int) -> list[tuple[int, int]]:
        base = self.base
        found = _OF_STATE[state].finditer(self._states, max(0, first - base), max(0, end - base))
        return [(base + match.start(), base + match.end()) for match in found]

    def by_count(self, first: int, end: int) -> Iterator[Run]:
        """Runs of the same delivery count in this range."""
        counts = self._counts[first - self.base : end - self.base]
        if not counts:
            return
        if counts.count(counts[0]) == len(counts):
            yield first, end, counts[0]
            return
        at = first
        for count, same in groupby(counts):
            size = sum(1 for _ in same)
            yield at, at + size, count
            at += size

    def is_held_by(self, owner: int, first: int, end: int) -> bool:
        """Whether all of these are with this member."""
        low, high = first - self.base, end - self.base
        if low < 0 or high > len(self._states) or self._states.count(ACQUIRED, low, high) != high - low:
            return False
        return self._owners[2 * low : 2 * high] == _owner(owner) * (high - low)

    def acquired_by(self, owner: int) -> list[tuple[int, int]]:
        """Runs that are with this member, and not staged."""
        if not self.held_by.get(owner):
            return []
        owners, wanted, runs = self._owners, _owner(owner), list[tuple[int, int]]()
        for first, end in self.of_state(ACQUIRED, self.base, self.end):
            low, high = 2 * (first - self.base), 2 * (end - self.base)
            if owners[low:high] == wanted * (end - first):
                runs.append((first, end))
                continue
            for at in range(low, high, 2):
                if owners[at : at + 2] == wanted:
                    runs.append((self.base + at // 2, self.base + at // 2 + 1))
        return runs

    def overdue(self, first: int, end: int, now: float) -> list[tuple[int, int]]:
        """Runs of acquired records in this range whose locks have run out."""
        runs = []
        for begin, stop in self.of_state(ACQUIRED, max(first, self.base), min(end, self.end)):
            deadlines = self._deadlines[begin - self.base : stop - self.base]
            if max(deadlines) <= now:
                runs.append((begin, stop))
                continue
            at = begin
            for late, same in groupby(deadline <= now for deadline in deadlines):
                size = sum(1 for _ in same)
                if late:
                    runs.append((at, at + size))
                at += size
        return runs

    def states(self) -> bytearray:
        """A copy, from the base on."""
        return bytearray(self._states)

    # --- changing ---------------------------------------------------------------------------------------------------

    def extend(self, end: int) -> None:
        """By records that are available, up to this offset."""
        more = end - self.end
        if more > 0:
            self._states.extend(bytes(more))
            self._counts.extend(bytes(more))
            self._owners.extend(bytes(2 * more))
            self._deadlines.frombytes(bytes(8 * more))

    def shrink(self) -> None:
        """Let go of records at the end that were never handed out."""
        kept = max(len(self._states.rstrip(b"\0")), len(self._counts.rstrip(b"\0")))
        del self._states[kept:], self._counts[kept:], self._owners[2 * kept :], self._deadlines[kept:]

    def put(self, first: int, end: int, state: int, count: int) -> None:
        """Records that nobody holds, as they are stored."""
        low, high = first - self.base, end - self.base
        self._states[low:high] = bytes([state]) * (high - low)
        self._counts[low:high] = bytes([min(count, MOST_DELIVERIES)]) * (high - low)

    def acquire(self, owner: int, first: int, end: int, count: int, deadline: float) -> None:
        """Hand out available records."""
        low, high, size = first - self.base, end - self.base, end - first
        self._states[low:high] = bytes([ACQUIRED]) * size
        self._counts[low:high] = bytes([min(count, MOST_DELIVERIES)]) * size
        self._owners[2 * low : 2 * high] = _owner(owner) * size
        self._deadlines[low:high] = array("d", [deadline]) * size
        self.held += size
        self.held_by[owner] = self.held_by.get(owner, 0) + size

    def renew(self, first: int, end: int, deadline: float) -> None:
        self._deadlines[first - self.base : end - self.base] = array("d", [deadline]) * (end - first)

    def stage(self, first: int, end: int) -> None:
        self._states[first - self.base : end - self.base] = bytes([STAGED]) * (end - first)

    def let_go(self, first: int, end: int, state: int) -> None:
        """Held records, which become this."""
        low, high, size = first - self.base, end - self.base, end - first
        self._disown(low, high)
        self._states[low:high] = bytes([state]) * size
        self._owners[2 * low : 2 * high] = _NOBODY * size

    def archive(self, first: int, end: int) -> bool:
        """The available records of this range. Whether there were any."""
        runs = self.of_state(AVAILABLE, first, end)
        for begin, stop in runs:
            self._states[begin - self.base : stop - self.base] = bytes([ARCHIVED]) * (stop - begin)
        return bool(runs)

    def advance(self) -> bool:
        """Let the window begin behind what is done with. Whether it does now."""
        done = _DONE.match(self._states)
        size = 0 if done is None else done.end()
        if size:
            self._drop(size)
        return size > 0

    def cut(self, base: int) -> None:
        """Let it begin here, whatever there was before."""
        size = min(base - self.base, len(self._states))
        for first, end in self._held_runs(size):
            self._disown(first, end)
        self._drop(size)
        self.base = max(self.base, base)

    def _held_runs(self, size: int) -> list[tuple[int, int]]:
        base = self.base
        runs = self.of_state(ACQUIRED, base, base + size) + self.of_state(STAGED, base, base + size)
        return [(first - base, end - base) for first, end in runs]

    def _drop(self, size: int) -> None:
        del self._states[:size], self._counts[:size], self._owners[: 2 * size], self._deadlines[:size]
        self.base += size

    def _disown(self, low: int, high: int) -> None:
        self.held -= high - low
        owners = self._owners[2 * low : 2 * high]
        if owners == owners[:2] * (high - low):
            self._holds_less(int.from_bytes(owners[:2], "big"), high - low)
            return
        for at in range(0, len(owners), 2):
            self._holds_less(int.from_bytes(owners[at : at + 2], "big"), 1)

    def _holds_less(self, owner: int, size: int) -> None:
        left = self.held_by[owner] - size
        if left:
            self.held_by[owner] = left
        else:
            del self.held_by[owner]


def _owner(owner: int) -> bytes:
    return owner.to_bytes(2, "big")


def done_at_the_front(states: bytearray) -> int:
    """How many of these are done with before the first that is not."""
    done = _DONE.match(states)
    return 0 if done is None else done.end()


def count_done(states: bytearray, begin: int) -> int:
    return states.count(ACKNOWLEDGED, begin) + states.count(ARCHIVED, begin)
