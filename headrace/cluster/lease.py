"""For how long a broker may believe that it is still what the store says it is.

A broker that cannot reach ZooKeeper, or whose process was stopped for a while, may have been replaced without knowing.
It can commit nothing then (other brokers refuse its epoch, the store its versions), but it could go on serving old
reads and waste its producers' time. So leaders ask here before they serve, and again before they answer.

A session lives for its whole time after ZooKeeper has heard from it. So the store is asked something a few times in
that time, and the lease holds for two thirds of it from when the last question was asked that got an answer. When the
connection is lost is no measure: a line that is cut without a word is noticed only after a while.
"""

from __future__ import annotations

from contextlib import suppress

from headrace.cluster import znodes
from headrace.cluster.store import SessionState, Store, StoreError
from headrace.world.clock import Clock

_QUESTIONS = 6  # in one session's time


class Lease:
    """`run` lives as long as the broker; `holds` is asked by everybody who serves as a leader."""

    def __init__(self, store: Store, clock: Clock, session_timeout_s: float) -> None:
        self._store = store
        self._clock = clock
        self._pause_s = session_timeout_s / _QUESTIONS
        self._lasts_s = session_timeout_s * 2 / 3
        self._asked_s = clock.monotonic()  # the last question that was answered
        self._lost = False
        store.on_session(self._on_session)

    def holds(self) -> bool:
        return not self._lost and self._clock.monotonic() - self._asked_s < self._lasts_s

    async def run(self) -> None:
        while True:
            asked_s = self._clock.monotonic()
            with suppress(StoreError):  # without a session there is no answer; the next one is asked in its turn
                await self._store.exists(znodes.CONTROLLER_EPOCH)  # any node will do
                self._asked_s = max(self._asked_s, asked_s)
            if self._clock.monotonic() - asked_s < self._pause_s:  # what waited for a connection says little: again
                await self._clock.sleep(self._pause_s)

    def _on_session(self, state: SessionState) -> None:
        self._lost = state is SessionState.LOST
