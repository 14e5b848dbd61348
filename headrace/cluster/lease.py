"""How long a leader may keep serving without hearing from ZooKeeper.

A broker that cannot reach ZooKeeper, or whose process was paused, may have been replaced without knowing it. It cannot
commit anything then (other brokers reject its epoch, and the store its versions), but it could still serve stale reads
and waste its producers' time. So leaders check the lease before they serve, and again before they answer.

A session lives for its full timeout after ZooKeeper last heard from it. So this sends a few requests to the store per
timeout, and the lease holds for two thirds of the timeout, counted from when the last request that was answered was
sent. The loss of the connection is not a usable start: a link that is cut silently is noticed only after a while.

The requests are `sync`, which ZooKeeper's leader has to answer. An answered read proves nothing: a server that is cut
off from the others answers reads for several seconds, and meanwhile the others, who hear nothing of the session, end
it. A sync writes nothing.
"""

from __future__ import annotations

from contextlib import suppress

from headrace.cluster.store import SessionState, Store, StoreError
from headrace.world.clock import Clock

_QUESTIONS = 6  # requests per session timeout


class Lease:
    """`run` for as long as the broker lives; leaders call `holds`."""

    def __init__(self, store: Store, clock: Clock, session_timeout_s: float) -> None:
        self._store = store
        self._clock = clock
        self._pause_s = session_timeout_s / _QUESTIONS
        self._lasts_s = session_timeout_s * 2 / 3
        self._asked_s = clock.monotonic()  # when the last request that was answered was sent
        self._lost = False
        store.on_session(self._on_session)

    def holds(self) -> bool:
        return not self._lost and self._clock.monotonic() - self._asked_s < self._lasts_s

    async def run(self) -> None:
        while True:
            asked_s = self._clock.monotonic()
            with suppress(StoreError):  # no response without a session; the next request follows as usual
                await self._store.sync()
                self._asked_s = max(self._asked_s, asked_s)
            if self._clock.monotonic() - asked_s < self._pause_s:  # else it waited for a connection: ask again
                await self._clock.sleep(self._pause_s)

    def _on_session(self, state: SessionState) -> None:
        self._lost = state is SessionState.LOST
