"""The SDK's profiles on one broker: how many messages a second, and how long one message takes at an easy rate.

Called once per round, with one peer awake. The profile's name stands where other sections have the peer's. Three
figures for each: `profile.produce` and `profile.consume` (messages a second, as fast as it goes) and `profile.ack.p99`
(milliseconds from `send` to the acknowledgement at 1,000 messages a second). Everything goes through the Python SDK,
so the figures hold what a program sees, Python's share included.
"""

from __future__ import annotations

import itertools
import time
from typing import get_args

from bench import topics
from bench.figures import Samples, percentile
from headrace.sdk import Consumer, Message, Producer, SdkError
from headrace.sdk.profiles import Profile

VALUE = bytes(100)
EASY_RATE = 1000  # messages a second
PATIENCE_POLLS = 120


class Profiles:
    """Rounds of all profiles against one broker."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._serial = itertools.count()

    def round(self, address: str, messages: int, easy_messages: int) -> None:
        for profile in get_args(Profile):
            topic = f"bench-profile-{next(self._serial)}"
            topics.create(address, topic)
            try:
                self._samples.add("profile.produce", profile, produced_per_s(address, topic, profile, messages))
                self._samples.add("profile.consume", profile, consumed_per_s(address, topic, profile, messages))
                waits_s = acknowledgement_s(address, topic, profile, easy_messages)
                self._samples.add("profile.ack.p99", profile, percentile(waits_s, 99.0) * 1000)
            finally:
                topics.delete(address, topic)


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
    """Messages a second from the first one on: the group has met by then."""
    with Consumer(address, topic, group=f"{topic}-readers", profile=profile) as consumer:
        read, begin = 0, 0.0
        for _ in range(PATIENCE_POLLS + messages):
            batch = consumer.poll(10_000, timeout_s=0.5)
            if batch and not read:
                begin, first = time.perf_counter(), len(batch)
            read += len(batch)
            if read >= messages:
                break
        if read < messages:
            raise RuntimeError(f"only {read} of {messages} messages of {topic} came out of {address}")
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
