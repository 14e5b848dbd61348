"""The SDK's profiles on headrace: throughput, and latency at a low rate.

Called by run.py, once per round. For each profile `profile.<name>.produce` and `.consume` (maximum messages per second)
and `.p99` (milliseconds from `send` to the acknowledgement at 1,000 messages per second); then the difference between
the two extremes: `profile.gain` (the rate of `throughput` over that of `latency`) and `profile.wait` (p99 of `latency`
over that of `throughput`). Everything runs through the Python SDK, so the figures include its cost.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import get_args

from bench import topics
from bench.figures import Samples, percentile
from bench.peers import HeadraceRecipe, Peer
from headrace.sdk import Consumer, Message, Producer, SdkError
from headrace.sdk.profiles import Profile

VALUE = bytes(100)
EASY_RATE = 1000  # messages a second
PATIENCE_POLLS = 120
WARM_MESSAGES, WARM_EASY_MESSAGES = 2000, 200
SLOW_SHARE = 4  # the latency profile sends this many times fewer messages: its rate is as precise, and takes less time


class Profiles:
    """Rounds of all profiles on headrace."""

    def __init__(self, samples: Samples, messages: int, easy_messages: int) -> None:
        self._samples, self._messages, self._easy_messages = samples, messages, easy_messages
        self._serial = itertools.count()

    def prepare(self, peers: Sequence[Peer]) -> None:
        self._all(peers, Samples(), WARM_MESSAGES, WARM_EASY_MESSAGES)

    def round(self, peers: Sequence[Peer]) -> None:
        self._all(peers, self._samples, self._messages, self._easy_messages)

    def _all(self, peers: Sequence[Peer], samples: Samples, messages: int, easy_messages: int) -> None:
        for peer in peers:
            if peer.name == HeadraceRecipe.name:
                with peer.awake():
                    self._measure(peer, samples, messages, easy_messages)

    def _measure(self, peer: Peer, samples: Samples, messages: int, easy_messages: int) -> None:
        rates: dict[str, float] = {}
        p99_ms: dict[str, float] = {}
        for profile in get_args(Profile):
            count = messages // SLOW_SHARE if profile == "latency" else messages
            topic = f"bench-profile-{next(self._serial)}"
            topics.create(peer.address, topic)
            try:
                rates[profile] = produced_per_s(peer.address, topic, profile, count)
                consumed = consumed_per_s(peer.address, topic, profile, count)
                p99_ms[profile] = (
                    percentile(acknowledgement_s(peer.address, topic, profile, easy_messages), 99.0) * 1000
                )
            finally:
                topics.delete(peer.address, topic)
            samples.add(f"profile.{profile}.produce", peer.name, rates[profile])
            samples.add(f"profile.{profile}.consume", peer.name, consumed)
            samples.add(f"profile.{profile}.p99", peer.name, p99_ms[profile])
        samples.add("profile.gain", peer.name, rates["throughput"] / rates["latency"])
        samples.add("profile.wait", peer.name, p99_ms["latency"] / p99_ms["throughput"])


def produced_per_s(address: str, topic: str, profile: Profile, messages: int) -> float:
    """Messages a second until the last one is acknowledged."""
    with Producer(address, profile=profile) as producer:
        producer.send_and_wait(topic, VALUE)
        begin = time.perf_counter()
        for _ in range(messages - 1):
            producer.send(topic, VALUE)
        producer.flush()
        return messages / (time.perf_counter() - begin)


def consumed_per_s(address: str, topic: str, profile: Profile, messages: int) -> float:
    """Messages per second, counted from the first one: the group has rebalanced by then."""
    with Consumer(address, topic, group=f"{topic}-readers", profile=profile) as consumer:
        read, begin = 0, 0.0
        for _ in range(PATIENCE_POLLS + messages):
            batch = consumer.poll(1000, timeout_s=0.5)
            if batch and not read:
                begin, first = time.perf_counter(), len(batch)
            read += len(batch)
            if read >= messages:
                break
        if read < messages:
            raise RuntimeError(f"only {read} of {messages} messages of {topic} could be read from {address}")
        return (read - first) / (time.perf_counter() - begin)


def acknowledgement_s(address: str, topic: str, profile: Profile, messages: int) -> list[float]:
    """Seconds from `send` to the acknowledgement, message by message."""
    waits_s: list[float] = []

    def sent(producer: Producer) -> None:
        begin = time.perf_counter()

        def acknowledged(error: SdkError | None, receipt: Message) -> None:
            if error is not None:
                raise error
            waits_s.append(time.perf_counter() - begin)

        producer.send(topic, VALUE, on_delivery=acknowledged)

    with Producer(address, profile=profile) as producer:
        producer.send_and_wait(topic, VALUE)
        start = time.perf_counter()
        for number in range(messages):
            sent(producer)
            while time.perf_counter() < start + number / EASY_RATE:
                producer.poll(0.0005)
        producer.flush()
    return waits_s
