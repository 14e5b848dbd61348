"""The message ids that a partition has seen within a window of time, in bounded memory. No files, no clock.

Filled and asked by dedup.py. An id counts from the moment its record is stored; if that happened in a transaction, from
its commit on, and never if it is aborted. Until then it counts for this transaction only. Ids are known by their digest
of 16 bytes. They leave in slices: a slice goes when its youngest id has become too old, or when there is no more room,
oldest first. `forgotten` counts those that had to leave early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

DIGEST_BYTES = 16
NO_TRANSACTION = -1
_ID_BYTES = 192  # of one id in memory: its share of the dict and of its slice, the digest, often a time of its own
_SLICES = 32  # into about so many the window is divided


class _Slice:
    __slots__ = ("digests", "newest_ms", "started_ms")

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.newest_ms = started_ms
        self.digests = bytearray()


class IdWindow:
    def __init__(self, window_ms: int, max_bytes: int) -> None:
        self.window_ms = window_ms
        self.forgotten = 0
        self._max_ids = max(1, max_bytes // _ID_BYTES)
        self._seen_ms: dict[bytes, int] = {}
        self._slices: deque[_Slice] = deque()
        self._pending: dict[int, dict[bytes, None]] = {}  # by producer id, of open transactions
        self._pending_ids = 0

    def __len__(self) -> int:
        return len(self._seen_ms) + self._pending_ids

    def limit(self, window_ms: int, max_bytes: int) -> None:
        """Change the limits; what is too much leaves with the next id that comes."""
        self.window_ms = window_ms
        self._max_ids = max(1, max_bytes // _ID_BYTES)

    def knows(self, digest: bytes, producer_id: int, now_ms: int) -> bool:
        """Whether a record with this id would be the second one; `producer_id` is that of the transaction it is in."""
        seen_ms = self._seen_ms.get(digest)
        if seen_ms is not None and now_ms - seen_ms < self.window_ms:
            return True
        return digest in self._pending.get(producer_id, ())

    def add(self, digests: Collection[bytes], producer_id: int, now_ms: int) -> None:
        """Records with these ids have been stored, in a transaction of this producer or in none."""
        if producer_id == NO_TRANSACTION:
            self._count(digests, now_ms)
        else:
            pending = self._pending.setdefault(producer_id, {})
            before = len(pending)
            pending.update(dict.fromkeys(digests))
            self._pending_ids += len(pending) - before
        self._fit(now_ms)

    def end(self, producer_id: int, *, commit: bool, now_ms: int) -> list[bytes] | None:
        """A transaction has ended. The ids that count from now on; None if there were no ids in it."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return None
        self._pending_ids -= len(pending)
        if not commit:
            return []
        self._count(pending, now_ms)
        self._fit(now_ms)
        return list(pending)

    def expire(self, now_ms: int) -> None:
        while self._slices and now_ms - self._slices[0].newest_ms >= self.window_ms:
            self._drop_oldest()

    def _count(self, digests: Collection[bytes], now_ms: int) -> None:
        youngest = self._slices[-1] if self._slices else None
        if (
            youngest is None
            or len(youngest.digests) >= DIGEST_BYTES * (self._max_ids // _SLICES + 1)
            or now_ms - youngest.started_ms > self.window_ms // _SLICES
        ):
            youngest = _Slice(now_ms)
            self._slices.append(youngest)
        self._seen_ms.update(dict.fromkeys(digests, now_ms))
        youngest.digests += b"".join(digests)
        youngest.newest_ms = max(youngest.newest_ms, now_ms)

    def _fit(self, now_ms: int) -> None:
        self.expire(now_ms)
        while len(self) > self._max_ids:
            if self._slices:
                self.forgotten += self._drop_oldest()
            else:
                gone = self._pending.pop(next(iter(self._pending)))
                self._pending_ids -= len(gone)
                self.forgotten += len(gone)

    def _drop_oldest(self) -> int:
        """How many ids that was. Those that were stored again since are in a later slice, and stay."""
        oldest, before = self._slices.popleft(), len(self._seen_ms)
        for at in range(0, len(oldest.digests), DIGEST_BYTES):
            digest = bytes(oldest.digests[at : at + DIGEST_BYTES])
            if self._seen_ms.get(digest, oldest.newest_ms + 1) <= oldest.newest_ms:
                del self._seen_ms[digest]
        return before - len(self._seen_ms)
