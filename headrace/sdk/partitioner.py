"""Custom partitioning: a function of the program chooses the partition.

Without one, librdkafka chooses: by the key's hash as the Java client does, at random without a key. With one, the
producer asks here for each message that names no partition. Caches the partition count of each topic for a minute, so
that partitions added later get used.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.sdk.errors import BadMessage
from headrace.world.clock import Clock

Partitioner = Callable[[bytes | None, int], int]
"""key and partition count -> partition"""

COUNT_GOOD_FOR_S = 60.0


class PartitionChoice:
    def __init__(self, function: Partitioner, ask_count: Callable[[str], int], clock: Clock) -> None:
        self._function = function
        self._ask_count = ask_count
        self._clock = clock
        self._counts: dict[str, tuple[int, float]] = {}  # count, and when it expires

    def choose(self, topic: str, key: bytes | None) -> int:
        if not self.knows(topic):
            self.learn(topic)
        count, _ = self._counts[topic]
        chosen = self._function(key, count)
        if not isinstance(chosen, int) or not 0 <= chosen < count:
            raise BadMessage(f"the partitioner chose {chosen!r} for {topic}, which has partitions 0 to {count - 1}")
        return chosen

    def knows(self, topic: str) -> bool:
        """Whether this topic's partition count is cached and not expired."""
        return topic in self._counts and self._clock.monotonic() < self._counts[topic][1]

    def learn(self, topic: str) -> None:
        """Ask the broker for the count; this may block."""
        self._counts[topic] = self._ask_count(topic), self._clock.monotonic() + COUNT_GOOD_FOR_S
