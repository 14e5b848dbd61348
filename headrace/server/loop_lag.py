"""How late the event loop runs, which shows whether something blocks it."""

from __future__ import annotations

from headrace.server.requests_seen import Latencies
from headrace.world.clock import Clock

_EVERY_S = 0.1


class LoopLag:
    def __init__(self, clock: Clock) -> None:
        self.seen = Latencies()
        self.worst_s = 0.0
        self._clock = clock

    async def run(self) -> None:
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(_EVERY_S)
            late = max(0.0, self._clock.monotonic() - before - _EVERY_S)
            self.seen.note(late)
            self.worst_s = max(self.worst_s, late)
