"""Partitions chosen by a function of the program.

Without one, librdkafka chooses: the key's hash as in the Java client, chance without a key. With one, the producer asks
here before each message that names no partition. Owns how many partitions each topic has, asked again every minute,
so that a topic that grew is used in full.
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
        self._counts: dict[str, tuple[int, float]] = {}  # count, and until when it is good

    def choose(self, topic: str, key: bytes | None) -> int:
        if not self.knows(topic):
            self.learn(topic)
        count, _ = self._counts[topic]
        chosen = self._function(key, count)
        if not isinstance(chosen, int) or not 0 <= chosen < count:
            raise BadMessage(f"the partitioner chose {chosen!r} for {topic}, which has partitions 0 to {count - 1}")
        return chosen

    def knows(self, topic: str) -> bool:
        """Whether the count of this topic's partitions is known and fresh."""
        return topic in self._counts and self._clock.monotonic() < self._counts[topic][1]

    def learn(self, topic: str) -> None:
        """Ask for the count; this may wait for the broker."""
        self._counts[topic] = self._ask_count(topic), self._clock.monotonic() + COUNT_GOOD_FOR_S
