"""The cost of a rebalance for a large group: one more member joins, in the classic protocol and in the new one
(KIP-848).

    python -m bench.rebalance ADDRESS TOPIC PARTITIONS MEMBERS PROTOCOL      prints one line of JSON

The members are real librdkafka consumers with stock settings, all in one child process, so `classic` is the eager range
assignor and `consumer` the broker's uniform one. Assignments and revocations are timed when the member's callback runs.
In between a partition has no reader; a partition that stays with its member should always have one.

`Rebalance`, called by run.py, runs the child against each peer and adds `rebalance.<protocol>.<figure>`: `settled`
(seconds until the new assignment is complete), `stopped` (per cent of the partitions that stayed with their member but
were revoked for a time), `kept` and `moved` (the longest time in milliseconds that such a partition, or a reassigned
one, had no reader).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench import topics
from bench.figures import Samples
from bench.peers import Peer
from bench.processes import Children

PROTOCOLS = ("classic", "consumer")
TOPIC = "bench-rebalance"
PARTITIONS_PER_MEMBER = 2
SETTLE_SECONDS = 75.0
RUN_SECONDS = 2 * SETTLE_SECONDS + 15.0
CALM_SECONDS = 6.0  # a group counts as settled after this long without a change: more than one heartbeat interval


class Holders:
    """The reader of each partition, and how long it had none."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.changed_at = time.monotonic()
        self._holder: dict[int, int] = {}
        self._given_at: dict[int, float] = {}
        self._gap_s: dict[int, float] = {}

    def take(self, member: int, _: Consumer, places: list[TopicPartition]) -> None:
        now = self.changed_at = time.monotonic()
        for place in places:
            self._holder[place.partition] = member
            given_at = self._given_at.pop(place.partition, None)
            if given_at is not None:
                self._gap_s[place.partition] = self._gap_s.get(place.partition, 0.0) + now - given_at

    def give(self, member: int, _: Consumer, places: list[TopicPartition]) -> None:
        now = self.changed_at = time.monotonic()
        for place in places:
            if self._holder.get(place.partition) == member:
                del self._holder[place.partition]
                self._given_at[place.partition] = now

    def settled(self, members: int) -> bool:
        """All partitions have readers, evenly, and nothing has changed for a while."""
        if len(self._holder) < self.partitions or time.monotonic() < self.changed_at + CALM_SECONDS:
            return False
        loads = [0] * members
        for member in self._holder.values():
            loads[member] += 1
        return max(loads) - min(loads) <= 1

    def now(self) -> dict[int, int]:
        return dict(self._holder)

    def start_over(self) -> None:
        self._gap_s.clear()
        self._given_at.clear()

    def gaps_ms(self, partitions: Sequence[int]) -> list[float]:
        return [self._gap_s[partition] * 1000 for partition in partitions if partition in self._gap_s]


class Crowd:
    """The members of one group."""

    def __init__(self, address: str, topic: str, partitions: int, protocol: str) -> None:
        self._address, self._topic, self._protocol = address, topic, protocol
        self._members: list[Consumer] = []
        self.holders = Holders(partitions)

    def add(self) -> None:
        number = len(self._members)
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": f"bench-{self._protocol}-{self._topic}",
                "group.protocol": self._protocol,
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )
        take, give = partial(self.holders.take, number), partial(self.holders.give, number)
        consumer.subscribe([self._topic], on_assign=take, on_revoke=give, on_lost=give)
        self._members.append(consumer)

    def settle(self) -> None:
        give_up_at = time.monotonic() + SETTLE_SECONDS
        while not self.holders.settled(len(self._members)):
            if time.monotonic() > give_up_at:
                held, all_of_them = len(self.holders.now()), self.holders.partitions
                raise TimeoutError(
                    f"{len(self._members)} members did not settle within {SETTLE_SECONDS:.0f} s; "
                    f"{held} of {all_of_them} partitions have readers"
                )
            for member in self._members:
                member.poll(0)
            time.sleep(0.001)


def measure(address: str, topic: str, partitions: int, members: int, protocol: str) -> dict[str, float]:
    crowd = Crowd(address, topic, partitions, protocol)
    for _ in range(members):
        crowd.add()
    crowd.settle()
    before = crowd.holders.now()
    crowd.holders.start_over()
    began = time.monotonic()
    crowd.add()
    crowd.settle()
    after = crowd.holders.now()
    kept = [partition for partition in after if after[partition] == before[partition]]
    moved = [partition for partition in after if after[partition] != before[partition]]
    kept_gaps = crowd.holders.gaps_ms(kept)
    return {
        "settled": crowd.holders.changed_at - began,
        "stopped": 100 * len(kept_gaps) / len(kept),
        "kept": max(kept_gaps, default=0.0),
        "moved": max(crowd.holders.gaps_ms(moved), default=0.0),
    }


class Rebalance:
    """The same on any peer."""

    def __init__(self, children: Children, samples: Samples) -> None:
        self._children, self._samples = children, samples

    def one_more(self, peer: Peer, members: int, protocol: str) -> None:
        """A settled group of `members` gets one more."""
        partitions, topic = members * PARTITIONS_PER_MEMBER, f"{TOPIC}-{protocol}"
        with peer.awake():
            topics.create(peer.address, topic, partitions)
            for name, value in self._run(peer, topic, partitions, members, protocol).items():
                self._samples.add(f"rebalance.{protocol}.{name}", peer.name, value)

    def _run(self, peer: Peer, topic: str, partitions: int, members: int, protocol: str) -> dict[str, Any]:
        what = [peer.address, topic, str(partitions), str(members), protocol]
        command = [sys.executable, "-m", "bench.rebalance", *what]
        finished = self._children.run(command, seconds=RUN_SECONDS)
        lines = finished.out.strip().splitlines()
        if not lines or not lines[-1].startswith("{"):
            raise RuntimeError(f"{members} {protocol} members of {peer.name} did not rebalance: {finished.reason()}")
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer


if __name__ == "__main__":
    _, its_address, its_topic, its_partitions, its_members, its_protocol = sys.argv
    try:
        print(
            json.dumps(measure(its_address, its_topic, int(its_partitions), int(its_members), its_protocol)), flush=True
        )
    except TimeoutError as error:
        print(error, file=sys.stderr, flush=True)
    # A hundred members that leave one by one would cause a hundred rebalances, which are not measured.
    os._exit(0)
