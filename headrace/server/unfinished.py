"""How many bytes all connections together may hold of requests that have not come completely.

Owned by the listener, asked by its connections. A connection asks before it reads more of a large request
(`grant`), a step at a time; if that would be too much, it does not read until others have finished or are gone, and is
called then (`room_granted`). What a connection has read already but must not handle yet is counted as well (`keep`),
and so is the copy of a request that takes long to handle (`keep_copy`). Small requests, and those in spare buffers, are
not counted: their number is bounded by other limits.

Invariants: the oldest large request always gets what it asks for, so those that wait for each other cannot block all;
so the bytes held are at most the budget, one request, and the beginnings of those that wait (64 KiB each: the listener
lets connections read less at a time while this is `full`). Those that wait are served in the order of their age.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

UNLIMITED = 1 << 62


class Owner(Protocol):
    def room_granted(self) -> None:
        """What was refused is granted now."""
        ...


class Copy:
    """The copy of a request that is being handled; the owner of what it takes."""

    __slots__ = ()

    def room_granted(self) -> None:
        """Never called: nothing more of it is to come."""


class Hold:
    """What one connection holds."""

    __slots__ = ("aside", "owner", "size", "wanted")

    def __init__(self, owner: Owner, *, aside: bool = False) -> None:
        self.owner = owner
        self.aside = aside  # nothing more is to come: it waits for its turn
        self.size = 0
        self.wanted = 0  # what it waits for, if it does


class UnfinishedRequests:
    def __init__(self, most_bytes: int, on_full: Callable[[bool], None] = lambda full: None) -> None:
        """`on_full` is told when `full` changes."""
        self.full = False  # somebody waits, or there are too many bytes
        self.holds: dict[Owner, Hold] = {}  # the oldest first
        self.held_bytes = 0
        self._most_bytes = most_bytes
        self._on_full = on_full
        self.waiting = 0  # how many wait

    def grant(self, owner: Owner, here: int, until: int) -> bool:
        """May `owner`, which has `here` bytes of a request, hold `until` bytes of it?"""
        hold = self.holds.get(owner)
        if hold is None:
            hold = self.holds[owner] = Hold(owner)
        if hold.size >= until:
            return True
        may = self._may(hold, until)
        self.waiting += (not may) - bool(hold.wanted)
        hold.wanted = 0 if may else until
        self._resize(hold, until if may else max(here, hold.size))
        self._tell()
        return may

    def keep(self, owner: Owner, size: int) -> None:
        """`owner` has read so much that it must not handle yet."""
        hold = self.holds[owner] = Hold(owner, aside=True)
        self._resize(hold, size)
        self._tell()

    def keep_copy(self, size: int, handled: asyncio.Future[Any]) -> None:
        """So many bytes of a request were copied, and are kept until it is `handled`."""
        copy = Copy()
        self.keep(copy, size)
        handled.add_done_callback(lambda _: self.release(copy))

    def release(self, owner: Owner) -> None:
        """`owner` holds nothing any more."""
        hold = self.holds.pop(owner, None)
        if hold is None:
            return
        self.held_bytes -= hold.size
        self.waiting -= bool(hold.wanted)
        granted = self._serve() if self.waiting else []
        self._tell()
        for waited in granted:
            waited.room_granted()

    def _may(self, hold: Hold, size: int) -> bool:
        if self.held_bytes - hold.size + size <= self._most_bytes:
            return True
        return next((other for other in self.holds.values() if not other.aside), hold) is hold

    def _serve(self) -> list[Owner]:
        granted: list[Owner] = []
        for hold in self.holds.values():
            if hold.wanted:
                if not self._may(hold, hold.wanted):
                    break
                self._resize(hold, hold.wanted)
                hold.wanted = 0
                self.waiting -= 1
                granted.append(hold.owner)
        return granted

    def _resize(self, hold: Hold, size: int) -> None:
        self.held_bytes += size - hold.size
        hold.size = size

    def _tell(self) -> None:
        full = self.waiting > 0 or self.held_bytes > self._most_bytes
        if full is not self.full:
            self.full = full
            self._on_full(full)
