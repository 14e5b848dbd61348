"""Start-up time: from the start of the process until ApiVersions is answered, on an empty folder and on a full one.

Called by run.py, while no other peer runs. The empty folder was made (Kafka's: formatted) and served once before, so
both find their program files in the page cache. The full one holds thousands of partitions, each
with a record, and is stopped cleanly before the measured start.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from bench import topics
from bench.figures import MIB, Samples
from bench.load import Generator, Order
from bench.peers import Peer
from bench.processes import resident_bytes

PARTITIONS_PER_TOPIC = 1000
STOP_SECONDS = 240.0

T = TypeVar("T")


def empty(peers: Sequence[Peer], rounds: int, samples: Samples) -> None:
    """Start-up of an empty broker."""
    for number in range(rounds):
        for peer in in_turn(peers, number):
            samples.add("startup", peer.name, peer.start())
            peer.stop()


def full(peers: Sequence[Peer], partitions: int, generator: Generator, samples: Samples) -> None:
    """Create the partitions, write to each of them, stop, start, and write to some again."""
    names = [f"bench-many-{number}" for number in range(partitions // PARTITIONS_PER_TOPIC)]
    for peer in peers:
        peer.format()
        peer.start()
        begin = time.monotonic()
        with peer.blamed():
            for name in names:
                topics.create(peer.address, name, PARTITIONS_PER_TOPIC)
            created = time.monotonic()
            samples.add("partitions.create", peer.name, created - begin)
            samples.add("partitions.written", peer.name, sum(_write_to_each(peer, name, generator) for name in names))
            samples.add("partitions.produce", peer.name, time.monotonic() - created)
        if not peer.stop(STOP_SECONDS):
            raise RuntimeError(f"{peer.name} took over {STOP_SECONDS:.0f} s to stop; its next start would not be clean")
        samples.add("partitions.startup", peer.name, peer.start())
        samples.add("partitions.memory", peer.name, resident_bytes(peer.pid) / MIB)
        _write_to_each(peer, names[-1], generator)
        peer.stop(seconds=1.0)  # this folder is not used any more


def in_turn(peers: Sequence[T], number: int) -> list[T]:
    """The peers in the order of this round: who goes first alternates. The same puts two results back in order."""
    return list(peers) if number % 2 == 0 else list(reversed(peers))


def _write_to_each(peer: Peer, topic: str, generator: Generator) -> int:
    """How many partitions acknowledged a record; the generator fails if any did not."""
    order = Order(topic, PARTITIONS_PER_TOPIC, partitions=PARTITIONS_PER_TOPIC)
    return generator.produce(peer, order).messages
