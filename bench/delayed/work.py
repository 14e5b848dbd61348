"""What the clients of all systems send and check: numbered messages that know when they are due, and their lateness.

Pure: no clock, no socket. The clients of the three systems (headrace_client.py, nats_client.py, redis_client.py) share
it, so that each has the same messages, and lateness means the same for each. Invariant: a `Collection` counts every
message of the order once, and tells of those that are missing, came twice or came early.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from bench.figures import percentile

_NUMBER_DIGITS, _DUE_DIGITS = 9, 13
_DUE_AT = _NUMBER_DIGITS + 1
_HEAD_BYTES = _DUE_AT + _DUE_DIGITS + 1
LATENESS = {"p50": 50.0, "p99": 99.0, "max": 100.0}


@dataclass(frozen=True)
class Batch:
    """So many messages of which the first is due at a time (epoch milliseconds), and so many a second from there on;
    without a rate, all at that time."""

    name: str
    count: int
    due_ms: int
    per_second: int = 0
    size: int = 100

    def messages(self) -> Iterator[tuple[int, int, bytes]]:
        """Number, due time and payload of each, in order of due time."""
        filler = b"x" * max(0, self.size - _HEAD_BYTES)
        for number in range(self.count):
            due_ms = self.due_ms + (number * 1000 // self.per_second if self.per_second else 0)
            yield number, due_ms, b"%09d %013d " % (number, due_ms) + filler


def number_of(payload: bytes) -> int:
    return int(payload[:_NUMBER_DIGITS])


def due_ms_of(payload: bytes) -> int:
    return int(payload[_DUE_AT : _DUE_AT + _DUE_DIGITS])


@dataclass(frozen=True)
class Arrival:
    """Some messages that a consumer was given together: when, and for each the server's own time of its delivery."""

    at_ms: float
    payloads: Sequence[bytes]
    stamps_ms: Sequence[float]


class Collection:
    """What one consumer got of a batch. Taking an arrival costs nothing; everything is computed afterwards."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._arrivals: list[Arrival] = []
        self.taken = 0

    def take(self, arrival: Arrival) -> None:
        self._arrivals.append(arrival)
        self.taken += len(arrival.payloads)

    @property
    def complete(self) -> bool:
        return self.taken >= self._count

    def summary(self) -> dict[str, float]:
        """Lateness in milliseconds, at the consumer and by the server's stamps, and what was wrong."""
        seen = bytearray(self._count)
        late, stamped, early, doubled = list[float](), list[float](), 0, 0
        first_due, last_at = float("inf"), 0.0
        for arrival in self._arrivals:
            for payload, stamp_ms in zip(arrival.payloads, arrival.stamps_ms, strict=True):
                number, due_ms = number_of(payload), due_ms_of(payload)
                doubled += seen[number]
                seen[number] = 1
                late.append(arrival.at_ms - due_ms)
                stamped.append(stamp_ms - due_ms)
                early += arrival.at_ms < due_ms
                first_due = min(first_due, due_ms)
            last_at = max(last_at, arrival.at_ms)
        if not late:
            return {"missing": float(self._count), "doubled": 0.0, "early": 0.0}
        figures = {f"late.{label}": percentile(late, percent) for label, percent in LATENESS.items()}
        figures |= {f"stamped.{label}": percentile(stamped, percent) for label, percent in LATENESS.items()}
        wrong = {"missing": float(self._count - sum(seen)), "doubled": float(doubled), "early": float(early)}
        return figures | wrong | {"out_seconds": (last_at - first_due) / 1000}


def wrong(summary: dict[str, float]) -> str | None:
    """What a collection lacks of being right, in words."""
    told = [f"{summary[what]:,.0f} {what}" for what in ("missing", "doubled", "early") if summary[what]]
    return ", ".join(told) or None


# --- the command line that the clients of all systems share ----------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """What a client is started for: to load a batch, or to read it."""

    verb: str
    address: str
    place: str  # the topic, the stream, or the key
    batch: Batch
    seconds: float  # after which it gives up

    def arguments(self) -> list[str]:
        batch = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(self.batch).items()]
        return [self.verb, self.address, self.place, f"--seconds={self.seconds}", *batch]


def parse(arguments: Sequence[str]) -> Task:
    parser = argparse.ArgumentParser()
    for name in ("verb", "address", "place"):
        parser.add_argument(name)
    parser.add_argument("--name", required=True)
    for name in ("--count", "--due-ms", "--per-second", "--size"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    told = parser.parse_args(arguments)
    batch = Batch(told.name, told.count, told.due_ms, told.per_second, told.size)
    return Task(told.verb, told.address, told.place, batch, told.seconds)
