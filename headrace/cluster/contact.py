"""How long the store has been reachable without interruption.

Sessions end only while ZooKeeper is available, and get their full timeout again when it comes back. So whoever waits
until the session of a dead broker must have ended counts only uninterrupted contact. Used by `leavers.py` and by
`server/standing.py`, which waits for the end of a broker's own previous session.
"""

from __future__ import annotations

from headrace.cluster.store import SessionState, Store
from headrace.world.clock import Clock


class Contact:
    """Created before the first session begins, or while one is connected."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._clock = clock
        self._since_s: float | None = clock.monotonic()
        store.on_session(self._on_session)

    def lasted_s(self) -> float:
        """0 while there is no connection."""
        return 0.0 if self._since_s is None else self._clock.monotonic() - self._since_s

    def _on_session(self, state: SessionState) -> None:
        self._since_s = self._clock.monotonic() if state is SessionState.CONNECTED else None
