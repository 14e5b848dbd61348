"""A budget of bytes for records that were loaded to be sent and are not sent yet, over all connections.

A reply asks for a grant before it loads its records, and the loaded bytes keep the grant (`granted`): it is given back
when the last view of them is gone, that is, when the socket has taken the reply, or nobody wants it any more. So
nothing has to be passed through the connection, whatever happens to a reply on its way.

What a holder (a connection) may have:
- any size, while four fifths of the budget have room for it and nobody waits;
- if it holds nothing, the least that can be sent, which is one batch: from the last fifth, and a small reply
  (SMALL_BYTES) always. So those who read what they were sent are served, however many do not;
- otherwise it waits. Those who hold nothing go first; among equals, one holder after the other has its turn, with its
  oldest request first.

Called by fetch_reading.py and express_fetch.py; the listener asks whether it is crowded. One budget belongs to one
event loop, but a grant may be given back by any thread, wherever Python frees it. Invariant: the bytes granted are at
most the limit, or one reply that is larger by itself, and above that one small reply for each holder.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.api._granted_py import granted
else:
    try:
        from headrace.api._granted import granted
    except ImportError:
        from headrace.api._granted_py import granted

__all__ = ["FREE_BYTES", "SMALL_BYTES", "Grant", "ReplyBudget", "ReplyBudgets", "granted"]

FREE_BYTES = 4096  # a reply of so little needs no grant: a connection may have 512 of them, which is 2 MiB
SMALL_BYTES = 64 << 10


class Grant:
    """So many bytes may be held, until this object is gone."""

    __slots__ = ("_budget", "holder", "size")

    def __init__(self, budget: ReplyBudget, holder: Hashable, size: int) -> None:
        self._budget = budget
        self.holder = holder
        self.size = size

    def __del__(self) -> None:
        self._budget.give_back(self.holder, self.size)


class _Waiting:
    __slots__ = ("granted", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.granted: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()


class ReplyBudget:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._shared_bytes = limit_bytes - limit_bytes // 5  # the rest is for those who hold nothing
        self._bytes = 0
        self._held: dict[Hashable, int] = {}
        self._returned: deque[tuple[Hashable, int]] = deque()
        self._waiting: dict[Hashable, deque[_Waiting]] = {}  # in the order of their turns
        self._idle: dict[Hashable, None] = {}  # those of them who hold nothing
        self._loop: asyncio.AbstractEventLoop | None = None  # of those who wait
        self._settles_soon = False
        self._refused = False

    # --- what others ask --------------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        self._settle()
        return self._bytes

    def held_by(self, holder: Hashable) -> int:
        self._settle()
        return self._held.get(holder, 0)

    @property
    def waiting(self) -> int:
        """How many replies wait for a grant."""
        return sum(map(len, self._waiting.values()))

    def crowded(self) -> bool:
        """Somebody waits, or has got less for want of room since the budget was last half empty."""
        self._settle()
        return self._refused

    @property
    def free_bytes(self) -> int:
        """What may be taken at once; nothing while others wait."""
        self._settle()
        return 0 if self._waiting else max(0, self._shared_bytes - self._bytes)

    # --- taking -----------------------------------------------------------------------------------------------------

    def take(self, size: int, holder: Hashable, *, least: bool = False) -> Grant | None:
        """A grant at once, or None: ask for less, or wait if this is the `least` that can be sent."""
        if self._returned:
            self._settle()
        if (not self._waiting and self._has_room(size)) or self._is_owed(size, holder, least):
            return self._grant(size, holder)
        self._refused = True
        return None

    async def wait(self, size: int, holder: Hashable) -> Grant:
        """A grant for the least that can be sent, when it is this holder's turn."""
        at_once = self.take(size, holder, least=True)
        if at_once is not None:
            return at_once
        self._loop = asyncio.get_running_loop()
        waiting = _Waiting(size)
        self._waiting.setdefault(holder, deque()).append(waiting)
        if holder not in self._held:
            self._idle[holder] = None
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            self._leave(holder, waiting)
            del waiting.granted  # it may have been granted just now
            raise

    def _has_room(self, size: int) -> bool:
        return not self._bytes or self._bytes + size <= self._shared_bytes

    def _is_owed(self, size: int, holder: Hashable, least: bool) -> bool:
        if holder in self._held:
            return False
        return size <= SMALL_BYTES or (least and self._bytes + size <= self._limit_bytes)

    def _grant(self, size: int, holder: Hashable) -> Grant:
        self._bytes += size
        self._held[holder] = self._held.get(holder, 0) + size
        return Grant(self, holder, size)

    # --- giving back ------------------------------------------------------------------------------------------------

    def give_back(self, holder: Hashable, size: int) -> None:
        """By a grant that is gone. It may come from any thread, and in the middle of anything: it is only noted."""
        self._returned.append((holder, size))
        if self._waiting and not self._settles_soon and self._loop is not None and not self._loop.is_closed():
            self._settles_soon = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        """Count what was given back, and see who can go on with it."""
        self._settles_soon = False
        while self._returned:
            holder, size = self._returned.popleft()
            self._bytes -= size
            left = self._held.pop(holder, 0) - size
            if left:
                self._held[holder] = left
                continue
            if holder in self._waiting:
                self._idle[holder] = None
                if self._waiting[holder][0].size <= SMALL_BYTES:
                    self._serve(holder)
        while self._idle:
            holder = next(iter(self._idle))
            if not self._is_owed(self._waiting[holder][0].size, holder, least=True):
                break
            self._serve(holder)
        while self._waiting:
            holder = next(iter(self._waiting))
            if not self._has_room(self._waiting[holder][0].size):
                return
            self._serve(holder)
        if self._bytes <= self._limit_bytes // 2:
            self._refused = False

    def _serve(self, holder: Hashable) -> None:
        """The first of this holder; its next turn comes after everybody else's."""
        self._idle.pop(holder, None)
        waiting = self._waiting.pop(holder)
        first = waiting.popleft()
        if waiting:
            self._waiting[holder] = waiting
        if not first.granted.done():
            first.granted.set_result(self._grant(first.size, holder))
        elif waiting and holder not in self._held:
            self._idle[holder] = None

    def _leave(self, holder: Hashable, waiting: _Waiting) -> None:
        """Its connection is gone."""
        of_holder = self._waiting.get(holder)
        if of_holder is not None and waiting in of_holder:
            of_holder.remove(waiting)
            if not of_holder:
                del self._waiting[holder]
                self._idle.pop(holder, None)
        self._settle()


class ReplyBudgets:
    """Those of one broker: replicas have their own, so that no consumer holds up replication."""

    def __init__(self, limit_bytes: int) -> None:
        self.consumers = ReplyBudget(limit_bytes)
        self.replicas = ReplyBudget(limit_bytes)

    def crowded(self) -> bool:
        return self.consumers.crowded() or self.replicas.crowded()
