"""Start-up: from the start of the process until the broker answers ApiVersions, on an empty folder and on a full one.

Called by __main__, while no other peer runs. The empty folder was made (Kafka's: formatted) and served once before, so
both find their program files in the page cache. The full one holds thousands of partitions, each
with a record, and is stopped cleanly before the measured start; records must still be accepted by every partition.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import topics
from bench.figures import MIB, Samples
from bench.load import Generator, Order
from bench.peers import Peer
from bench.processes import resident_bytes

PARTITIONS_PER_TOPIC = 1000


def empty(peers: Sequence[Peer], rounds: int, samples: Samples) -> None:
    """Start-up of a broker with nothing in it."""
    for number in range(rounds):
        for peer in in_turn(peers, number):
            samples.add("startup", peer.name, peer.start())
            peer.stop()


def full(peers: Sequence[Peer], partitions: int, generator: Generator, samples: Samples) -> None:
    """Create the partitions, write to each, start again, write to each again."""
    for peer in peers:
        peer.format()
        peer.start()
        begin = time.monotonic()
        for number in range(partitions // PARTITIONS_PER_TOPIC):
            topics.create(peer.address, f"bench-many-{number}", PARTITIONS_PER_TOPIC)
        samples.add("partitions.create", peer.name, time.monotonic() - begin)
        _produce_to_all(peer, partitions, generator)
        peer.stop()
        samples.add("partitions.startup", peer.name, peer.start())
        samples.add("partitions.memory", peer.name, resident_bytes(peer.pid) / MIB)
        begin = time.monotonic()
        samples.add("partitions.written", peer.name, _produce_to_all(peer, partitions, generator))
        samples.add("partitions.produce", peer.name, time.monotonic() - begin)
        peer.stop()


def in_turn(peers: Sequence[Peer], number: int) -> list[Peer]:
    """The peers in the order of this round: who goes first alternates."""
    return list(peers) if number % 2 == 0 else list(reversed(peers))


def _produce_to_all(peer: Peer, partitions: int, generator: Generator) -> int:
    """How many partitions acknowledged a record; the generator fails if any did not."""
    written = 0
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        order = Order(f"bench-many-{number}", PARTITIONS_PER_TOPIC, partitions=PARTITIONS_PER_TOPIC)
        written += generator.produce(peer.address, order).messages
    return written
