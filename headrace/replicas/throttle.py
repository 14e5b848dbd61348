"""A limit on the bytes per second for replicas that catch up, so that clients keep the rest of the network.

As in Kafka: `leader.replication.throttled.rate` and `follower.replication.throttled.rate` are a broker's rates, and
`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` of a topic name the replicas they
apply to, as PARTITION:BROKER or `*`. A replica that is in sync is never throttled. Owned by replicas.broker_context;
replicas.leader_role uses the leader's, replicas.follower the follower's.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.model.settings import LONG_MAX
from headrace.world.clock import Clock

EVERYBODY = "*"


class Throttle:
    """Open while the rate is kept. One response may exceed it; then it is closed until the excess is made up for."""

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
        """`size` bytes were sent or received."""
        if self._bytes_per_s != LONG_MAX and size:
            self._owed_bytes += size


def names(throttled: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list names this replica."""
    return bool(throttled) and (EVERYBODY in throttled or f"{partition}:{broker_id}" in throttled)
