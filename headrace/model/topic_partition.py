"""Which partition is meant: the name of its topic, and its number.

To everything that hashes, compares or unpacks it, it is a plain tuple of the two.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
