"""What delayed messages ask for in a simulation, and what is known of those that were sent.

Delays are short, or until `later_ms`, an hour after the story begins, when the brokers have been restarted. Shared by
the clients that send delayed messages and by those that cancel and move them (sim/clients/changer.py).
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from headrace.wire.record import Headers, Record
from headrace.world.clock import Clock

HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


class Order(NamedTuple):
    details: dict[str, Any]  # for the checker
    headers: Headers


class Known(NamedTuple):
    """A delayed message that was acknowledged."""

    uid: str
    tp: str
    id: int


def delay(delay_ms: int) -> Order:
    return Order({"delay_ms": delay_ms}, (("headrace.delay-ms", b"%d" % delay_ms),))


def deliver_at(at_ms: int) -> Order:
    return Order({"deliver_at": at_ms}, (("headrace.deliver-at", b"%d" % at_ms),))


def every_minute() -> Order:
    headers = (("headrace.cron", b"* * * * *"), ("headrace.cron-tz", b"Asia/Kolkata"))
    return Order({"cron": "* * * * *", "period_ms": _MINUTE_MS}, headers)


def cancel(target: Known) -> Order:
    return Order({"cancel": target.uid}, (("headrace.cancel", b"%d" % target.id),))


def cancel_key(key: str) -> Order:
    return Order({"cancel_key": key}, (("headrace.cancel-key", key.encode()),))


def move(target: Known, to: Order) -> Order:
    return Order({"move": target.uid} | to.details, (("headrace.move", b"%d" % target.id), *to.headers))


class Orders:
    def __init__(self, clock: Clock, later_ms: int, share: float = 0.7) -> None:
        self._clock = clock
        self._later_ms = later_ms
        self._share = share
        self._sent: dict[int, tuple[str, str]] = {}
        self.known: list[Known] = []

    def draw(self, chance: random.Random) -> Order | None:
        """Of the next message; None if it is not delayed."""
        if chance.random() > self._share:
            return None
        if chance.random() < 0.05:
            return every_minute()
        return self.time(chance)

    def time(self, chance: random.Random) -> Order:
        kind = chance.random()
        if kind < 0.35:
            return delay(chance.randint(0, 3000))
        if kind < 0.55:
            return delay(chance.randint(0, 40) * 1000)
        if kind < 0.75:
            return deliver_at(self._clock.now_ms() // 1000 * 1000 + chance.randint(-5, 20) * 1000)
        return deliver_at(self._later_ms + chance.randint(-60, 30) * 1000)

    def sent(self, op: int, tp: str, record: Record) -> None:
        self._sent[op] = (tp, (record.value or b"").split(b"\n", 1)[0].decode())

    def stored(self, op: int, offset: int) -> None:
        if op in self._sent:
            tp, uid = self._sent.pop(op)
            self.known.append(Known(uid, tp, offset))
