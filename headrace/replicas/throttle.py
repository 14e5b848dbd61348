"""A limit on the bytes a second that replicas which catch up may take, so that clients keep the rest of the network.

As in Kafka: `leader.replication.throttled.rate` and `follower.replication.throttled.rate` are a broker's rates, and a
topic names the replicas they hold for, `leader.replication.throttled.replicas` and the same for followers, as
PARTITION:BROKER or `*`. A replica that is in sync is never held up. Owned by replicas.home; api.fetch asks for the
leader's side, replicas.follower for the follower's.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.model.settings import LONG_MAX
from headrace.world.clock import Clock

EVERYBODY = "*"


class Throttle:
    """Open while no more went through than the rate allows; one answer may go beyond it, and is waited off."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bytes_per_s = LONG_MAX
        self._owed_bytes = 0.0
        self._at_s = 0.0

    @property
    def bytes_per_s(self) -> int:
        return self._bytes_per_s

    def limit(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s

    @property
    def is_open(self) -> bool:
        if self._bytes_per_s == LONG_MAX:
            return True
        now_s = self._clock.monotonic()
        self._owed_bytes = max(0.0, self._owed_bytes - (now_s - self._at_s) * self._bytes_per_s)
        self._at_s = now_s
        return self._owed_bytes <= 0

    def passed(self, size: int) -> None:
        """So many bytes went through."""
        if self._bytes_per_s != LONG_MAX and size:
            self._owed_bytes += size


def names(throttled: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list names this replica."""
    return bool(throttled) and (EVERYBODY in throttled or f"{partition}:{broker_id}" in throttled)
