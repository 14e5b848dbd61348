"""Who left an ISR is remembered for as long as those who stayed may be dead without anybody knowing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from headrace.cluster.change import State
from headrace.cluster.leavers import Leavers
from headrace.cluster.sessions import Sessions
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from sim.loop import SimClock, run
from sim.zookeeper import SimZooKeeper

PARTED = PartitionImage(0, (1, 2, 3), (1, 2), 1, 4, 7, (10, 20), last_known=(3,))


class Room:
    """The controller's image and queue, with a clock of its own."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.ensemble = SimZooKeeper(session_timeout_s=3.0)
        self.forgotten_at_s: float | None = None
        self.image = ClusterImage("c", 1, brokers={n: BrokerImage(n, f"b{n}", 9092, None, 10 * n) for n in (1, 2, 3)})
        self.set(PARTED)

    def set(self, partition: PartitionImage) -> None:
        topic = TopicImage("orders", uuid.UUID(int=1), (partition,), {})
        self.image = replace(self.image, topics={"orders": topic})

    async def write(self, states: Sequence[State]) -> None:
        for _, partition in states:
            assert partition == replace(PARTED, last_known=())
            self.forgotten_at_s = self.clock.monotonic()
            self.set(partition)

    async def play(self, trouble: Sequence[tuple[float, str]] = ()) -> float | None:
        """When the one who left was forgotten, counted from the beginning; None if not within a minute."""
        sessions = Sessions(lambda: self.ensemble.connect("broker"))
        await sessions.begin()
        leavers = Leavers(sessions, self.clock, 3.0, lambda: self.image, self.write)
        running, began_s = asyncio.create_task(leavers.run()), self.clock.monotonic()
        for at_s, what in trouble:
            await self.clock.sleep(began_s + at_s - self.clock.monotonic())
            if what == "cut":
                self.ensemble.break_connection("broker")
            elif what == "stop":
                self.ensemble.stop()
            elif what == "start":
                self.ensemble.start()
            elif what == "restart":
                self.set(replace(PARTED, isr_epochs=(10, 21)))
                self.image = replace(
                    self.image, brokers={**self.image.brokers, 2: BrokerImage(2, "b2", 9092, None, 20)}
                )
        await self.clock.sleep(began_s + 60 - self.clock.monotonic())
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return None if self.forgotten_at_s is None else self.forgotten_at_s - began_s


def test_who_left_is_forgotten_when_the_sessions_of_dead_brokers_would_have_ended() -> None:
    forgotten_s = run(Room().play(), seed=1)
    assert forgotten_s is not None
    assert 6.0 <= forgotten_s <= 10.0


def test_time_without_zookeeper_does_not_count() -> None:
    """Sessions get all of their time again when it is back."""
    forgotten_s = run(Room().play([(5.0, "cut")]), seed=1)
    assert forgotten_s is not None
    assert forgotten_s >= 11.0


def test_nobody_is_forgotten_while_zookeeper_is_away() -> None:
    """Nobody's session ends meanwhile; and the store may keep the write, which then takes effect at the return."""
    forgotten_s = run(Room().play([(5.0, "stop"), (30.0, "start")]), seed=1)
    assert forgotten_s is not None
    assert forgotten_s >= 36.0


def test_nobody_is_forgotten_while_one_who_stayed_is_not_who_it_was() -> None:
    assert run(Room().play([(2.0, "restart")]), seed=1) is None
