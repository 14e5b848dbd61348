"""The part of a story that has delayed messages: topics, clients, and the hour that passes at the end.

Producers send messages that are due soon, in an hour, or every minute, outside of transactions and in them; a client
cancels and moves some. One topic keeps its records, the other drops what is older than a second, and with that the
records that wait. After the faults all brokers are stopped or killed, an hour passes, and they start again: what has
become due is released then, and what becomes due next a little later. Used by sim/story.py.

A leader counts its time from when it took office, so only this restart makes all clocks right again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from sim.clients.changer import Changer
from sim.clients.orders import HOUR_MS, Orders
from sim.clients.producer import Producer
from sim.clients.reader import Partition, Reader
from sim.clients.reminders import Reminders
from sim.cluster import SimCluster
from sim.history.event import READ_COMMITTED, READ_UNCOMMITTED
from sim.history.recorder import Recorder
from sim.loop import SimClock

LATER, FLEETING = "later", "fleeting"
DELAY_TOPICS = {LATER: 2, FLEETING: 1}
SETTINGS = {"log.retention.check.interval.ms": "1000"}
_CONFIGS = {
    LATER: {"headrace.delay.enable": "true"},
    FLEETING: {"headrace.delay.enable": "true", "retention.ms": "1000", "segment.bytes": "1200"},
}
_BEFORE_MS = 20_000  # how long before the hour is over the brokers start again
_AFTER_MS = 60_000  # when everything must be out


class DelayStory:
    def __init__(
        self, cluster: SimCluster, recorder: Recorder, seed: int, *, fsync: bool, later_ms: int = HOUR_MS
    ) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._random = random.Random(f"delays {seed}")
        self._fsync = fsync
        self._clock = SimClock()
        self._later_ms = self._clock.now_ms() + later_ms
        self.orders = Orders(self._clock, self._later_ms)

    async def begin(self) -> None:
        self._recorder.happened("clock", "clock", details={"wall_ms": self._clock.now_ms()})
        admin = self._cluster.caller("delay-admin")
        for topic, partitions in DELAY_TOPICS.items():
            await admin.create_topic(topic, partitions, _CONFIGS[topic])

    def clients(self, stop: asyncio.Event) -> tuple[list[Reader], list[Coroutine[Any, Any, None]]]:
        cluster, recorder, clock, orders = self._cluster, self._recorder, self._clock, self.orders
        places: list[Partition] = [(topic, index) for topic, count in DELAY_TOPICS.items() for index in range(count)]
        readers = [
            Reader(cluster.caller("reader-3"), recorder, "reader-3", places, READ_UNCOMMITTED),
            Reader(cluster.caller("reader-4"), recorder, "reader-4", places, READ_COMMITTED),
        ]
        parts = [
            Producer(cluster.caller(f"{topic}-er"), recorder, clock, f"{topic}-er", topic, count, orders).run(stop)
            for topic, count in DELAY_TOPICS.items()
        ]
        parts.append(Changer(cluster.caller("changer"), recorder, clock, "changer", orders).run(stop))
        reminders = Reminders(cluster.caller("reminders"), recorder, clock, "reminders", places, orders)
        return readers, [*parts, reminders.run(stop)]

    async def keep(self) -> None:
        """From now on retention removes nothing, so that the final read has all that is released."""
        await self._cluster.caller("keeper").set_topic(FLEETING, "retention.ms", "-1")
        await asyncio.sleep(5)
        for index in range(DELAY_TOPICS[FLEETING]):
            self._recorder.happened("keeper", "kept", tp=f"{FLEETING}-{index}")

    async def pass_an_hour(self) -> None:
        """With all brokers off."""
        how = self._random.choice(("stop", "kill", "power") if self._fsync else ("stop", "kill"))
        for machine in self._cluster.machines.values():
            if how == "stop":
                await machine.stop()
            elif how == "kill":
                machine.kill()
            else:
                machine.cut_power()
        jump_ms = self._later_ms - _BEFORE_MS - self._clock.now_ms()
        self._clock.jump(jump_ms)
        for machine in self._cluster.machines.values():
            machine.clock.jump(jump_ms)
        self._recorder.happened("clock", "clock", details={"wall_ms": self._clock.now_ms(), "right": True})
        for machine in self._cluster.machines.values():
            machine.start()

    async def let_all_come(self) -> None:
        """Until everything that was due within the hour is out."""
        await asyncio.sleep(max(0, self._later_ms + _AFTER_MS - self._clock.now_ms()) / 1000)
        into_minute_ms = self._clock.now_ms() % 60_000  # let no message that comes every minute come during the read
        await asyncio.sleep(((70_000 - into_minute_ms) % 60_000) / 1000)
