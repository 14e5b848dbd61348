"""Which record is due next: ids in buckets by their due times. 8 bytes a record.

Three kinds of buckets: of twenty minutes, of a second, and of a millisecond. A record enters the coarsest kind that has
not been opened yet for its time; when the time of a bucket comes, it is opened into finer ones, in steps of a few
thousand ids, so that a million records that are due in one second hold nobody up. A bucket may name ids that are gone
or were moved: whoever opens it asks for the due time, and takes those that are still due in it.

Invariant: every record that waits is in one bucket that covers its due time, or in what is being opened.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable

_FINE_MS = 1000
_COARSE_MS = 1_200_000
_AT_ONCE = 4000  # ids: about two milliseconds
NEVER = 2**62
DueOf = Callable[[int], int | None]


class _Bucket:
    """Ids in the order in which they came; those before `at` are done with."""

    __slots__ = ("at", "ids", "is_sorted")

    def __init__(self) -> None:
        self.ids = array("q")
        self.at = 0
        self.is_sorted = True

    def add(self, key: int) -> None:
        if self.ids and key < self.ids[-1]:
            self.is_sorted = False
        self.ids.append(key)

    def sort(self) -> None:
        if not self.is_sorted:
            self.ids = array("q", sorted(set(self.ids[self.at :])))
            self.at = 0
            self.is_sorted = True


class _Ring:
    """Buckets of one width."""

    __slots__ = ("buckets", "order", "width_ms")

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms
        self.buckets: dict[int, _Bucket] = {}
        self.order: list[int] = []  # a heap

    def add(self, key: int, due_ms: int) -> None:
        number = due_ms // self.width_ms
        bucket = self.buckets.get(number)
        if bucket is None:
            bucket = self.buckets[number] = _Bucket()
            heapq.heappush(self.order, number)
        bucket.add(key)

    @property
    def first_ms(self) -> int:
        """When the first bucket begins."""
        return self.order[0] * self.width_ms if self.order else NEVER

    def pop(self) -> _Bucket:
        return self.buckets.pop(heapq.heappop(self.order))


class DueWheel:
    def __init__(self, due_of: DueOf) -> None:
        self.size = 0
        """Ids in all buckets, those that mean nothing any more included."""
        self._due_of = due_of
        self._coarse, self._fine, self._exact = _Ring(_COARSE_MS), _Ring(_FINE_MS), _Ring(1)
        self._coarse_to = self._fine_to = -NEVER  # what is due before is in finer buckets
        self._opening: list[tuple[_Bucket, int, int]] = []  # with its begin and end

    def add(self, key: int, due_ms: int) -> None:
        self.size += 1
        ring = self._coarse
        if due_ms < self._fine_to:
            ring = self._exact
        elif due_ms < self._coarse_to:
            ring = self._fine
        ring.add(key, due_ms)

    def add_all(self, ids: array[int]) -> None:
        """Very many, of which each finds its place when the wheel is asked what is due."""
        if ids:
            bucket = _Bucket()
            bucket.ids = array("q", ids)
            self.size += len(ids)
            self._opening.append((bucket, 0, NEVER))

    def next_ms(self) -> int:
        """When something may be due, or is to be opened: not later than the first due time. NEVER if nothing waits."""
        return min(self._exact.first_ms, self._closed_ms)

    @property
    def _closed_ms(self) -> int:
        """When the first begins of what is not quite open."""
        if self._opening:
            return min(begin for _, begin, _ in self._opening)
        return min(self._fine.first_ms, self._coarse.first_ms)

    def due(self, now_ms: int, limit: int, below: int) -> tuple[list[tuple[int, int]], bool]:
        """(due time, id) of the first records that are due, in order, at most `limit`, with ids below `below`; and
        whether another call may find more now. They stay until they are due no more."""
        left, moments = _AT_ONCE, limit
        while True:
            if self._closed_ms > now_ms or len(self._exact.order) >= moments:
                found = self._found(now_ms, limit, below)
                if found or self._closed_ms > now_ms:
                    return found, len(found) == limit or (bool(found) and self._closed_ms <= now_ms)
                moments = len(self._exact.order) + limit  # none of these may be released
            if left <= 0:
                return [], True
            left -= self._open_some(left)

    def _found(self, now_ms: int, limit: int, below: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        exact, closed_ms = self._exact, self._closed_ms
        while exact.order and not self._is_used(exact.buckets[exact.order[0]], exact.order[0]):
            self.size -= len(exact.pop().ids)
        for due_ms in heapq.nsmallest(limit + _AT_ONCE, exact.order):
            if due_ms > now_ms or due_ms >= closed_ms:
                break
            bucket = exact.buckets[due_ms]
            bucket.sort()
            for place in range(bucket.at, len(bucket.ids)):
                key = bucket.ids[place]
                if key >= below or len(found) == limit:
                    break
                if self._due_of(key) == due_ms and (not found or found[-1] != (due_ms, key)):
                    found.append((due_ms, key))
            if len(found) == limit:
                break
        return found

    def _is_used(self, bucket: _Bucket, due_ms: int) -> bool:
        """Whether an id of it still waits; forgets those at its front that do not."""
        bucket.sort()
        ids, at = bucket.ids, bucket.at
        while at < len(ids) and self._due_of(ids[at]) != due_ms:
            at += 1
        bucket.at = at
        return at < len(ids)

    def _open_some(self, most: int) -> int:
        """Go on opening the first bucket that is not quite open; how many ids that took."""
        if not self._opening:
            ring = self._coarse if self._coarse.first_ms <= self._fine.first_ms else self._fine
            begin = ring.first_ms
            end = begin + ring.width_ms
            self._opening.append((ring.pop(), begin, end))
            if ring is self._coarse:
                self._coarse_to = max(self._coarse_to, end)
            else:
                self._fine_to = max(self._fine_to, end)
        bucket, begin, end = self._opening[-1]
        part = bucket.ids[bucket.at : bucket.at + most]
        bucket.at += len(part)
        if bucket.at == len(bucket.ids):
            self._opening.pop()
        self.size -= len(part)
        for key in part:
            due_ms = self._due_of(key)
            if due_ms is not None and begin <= due_ms < end:
                self.add(key, due_ms)
        return len(part) + 1
