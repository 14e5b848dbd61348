"""How many records a fetch of a share group is handed out, and in which portions. Pure; used by `deliveries`."""

from __future__ import annotations

from msgspec import Struct

_THROTTLED_FROM = 500  # records: where halving begins, if a fetch asks for more


class Limits(Struct, frozen=True):
    """The settings of a group that deliveries obey."""

    lock_s: float = 30.0
    delivery_limit: int = 5
    max_locks: int = 2000


class Span(Struct, frozen=True):
    """Offsets of a log that belong together, both ends included: a batch, or offsets that nobody is to be given."""

    first: int
    last: int
    deliverable: bool = True


class Acquired(Struct):
    first: int
    last: int
    count: int
    """How often they were handed out, this time included."""


class Taking:
    """One pass over the spans that a fetch has read."""

    def __init__(self, limits: Limits, most: int, room: int, *, strict: bool) -> None:
        self.acquired: list[Acquired] = []
        self.is_over = room <= 0 or most <= 0
        self._limit = limits.delivery_limit
        self._most = most
        self._room = min(room, most) if strict else room
        self._taken = 0

    def allows(self, size: int, count: int) -> int:
        """How many of so many records, whose next delivery is this one."""
        allowed = min(size, self._room - self._taken)
        together = throttled(count, self._limit, self._most)
        if together is None:
            return allowed
        if self._taken:  # records that are suspect are not mixed with others
            allowed = 0
        self.is_over = True
        return min(allowed, together)

    def took(self, first: int, end: int, count: int) -> None:
        self._taken += end - first
        self.is_over = self.is_over or self._taken >= self._room
        self.acquired.append(Acquired(first, end - 1, count))

    def end_of_span(self) -> None:
        self.is_over = self.is_over or self._taken >= self._most


def throttled(count: int, limit: int, most: int) -> int | None:
    """How many records may be handed out together for the `count`th time; None: as many as there is room for."""
    half = (limit + 1) // 2
    if count < max(2, half):
        return None
    if count >= limit:
        return 1
    return max(1, min(most, _THROTTLED_FROM) >> (count - half + 1))


def portions(acquired: list[Acquired], size: int) -> list[Acquired]:
    """What was acquired in pieces, in portions of neighbours with the same delivery count, of about `size` records."""
    joined: list[Acquired] = []
    for piece in acquired:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.last + 1 == piece.first
            and last.count == piece.count
            and piece.last - last.first < size
        ):
            last.last = piece.last
        else:
            joined.append(Acquired(piece.first, piece.last, piece.count))
    return joined
