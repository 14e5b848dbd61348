"""For how long a broker may believe that it is still what the store says it is.

A broker that cannot reach ZooKeeper, or whose process was stopped for a while, may have been replaced without knowing.
It can commit nothing then (other brokers refuse its epoch, the store its versions), but it could go on serving old
reads and waste its producers' time. So leaders ask here before they serve, and again before they answer: the lease
holds while the store was reached within two thirds of the session's time, and the event loop has not stood still for a
whole session. After a stand-still it holds again when the store has answered, which it does only in a live session.
"""

from __future__ import annotations

from headrace.cluster.store import SessionState, Store, StoreError
from headrace.world.clock import Clock

_BEATS = 6  # in one session's time


class Lease:
    """`run` lives as long as the broker; `holds` is asked by everybody who serves as a leader."""

    def __init__(self, store: Store, clock: Clock, session_timeout_s: float) -> None:
        self._store = store
        self._clock = clock
        self._session_timeout_s = session_timeout_s
        self._doubted = False  # we stood still: the session may be over
        self._beat_s = clock.monotonic()
        self._state = SessionState.CONNECTED
        self._since_s = self._beat_s
        store.on_session(self._on_session)

    def holds(self) -> bool:
        if self._state is SessionState.LOST:
            return False
        now = self._clock.monotonic()
        if self._state is SessionState.SUSPENDED and now - self._since_s > self._session_timeout_s * 2 / 3:
            return False
        if now - self._beat_s >= self._session_timeout_s:
            self._doubted = True
        return not self._doubted

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._session_timeout_s / _BEATS)
            self.holds()  # notes a stand-still before the beat hides it
            self._beat_s = self._clock.monotonic()
            if self._doubted:
                await self._ask_again()

    async def _ask_again(self) -> None:
        try:
            await self._store.sync()
        except StoreError:
            return
        self._beat_s = self._clock.monotonic()
        self._doubted = False

    def _on_session(self, state: SessionState) -> None:
        self._state = state
        self._since_s = self._clock.monotonic()
