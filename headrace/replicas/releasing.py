"""Releasing delayed records when they are due, for all partitions that this broker leads: one task, one timer.

A partition is looked at when it gets a leader here, when something was parked, moved or committed in it, and when its
next record is due. What is due and below the last stable offset is written in pieces of a few hundred records, each
with one write and with no await between the look at what is pending and the write; others have their turn between the
pieces. Time is the leader's (office_clock.py).

Invariant: nothing is released before it is due, or after it was cancelled; what a crash or a new leader interrupts is
released by whoever leads next, unless the note of the release is in its log.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from headrace.log.partition_log import PartitionLog
from headrace.log.release import release
from headrace.log.schedule import Due
from headrace.replicas.lateness import Lateness
from headrace.replicas.office_clock import OfficeClock
from headrace.replicas.open_notes import OpenNotes
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock

logger = logging.getLogger(__name__)

_AT_ONCE = 500  # records of one write
_BLOCKED_S = 0.05  # until what is due, but behind an open transaction or not committed, is looked at again
_FAILED_S = 1.0


class Releasable(Protocol):
    """A partition, as far as releasing is concerned."""

    @property
    def log(self) -> PartitionLog: ...

    @property
    def office(self) -> OfficeClock | None:
        """The leader's time; None while another broker leads."""
        ...

    @property
    def lateness(self) -> Lateness: ...

    @property
    def last_stable_offset(self) -> int: ...

    def append_notes(self, records: memoryview) -> object: ...


class Releasing:
    def __init__(self, clock: Clock, off_loop: Callable[..., Awaitable[Any]]) -> None:
        self._clock = clock
        self.notes = OpenNotes(off_loop)
        self._agenda: dict[Releasable, tuple[float, int]] = {}
        self._queue: list[tuple[float, int]] = []  # a heap of these; one counts if it stands in the agenda
        self._numbers = itertools.count()
        self._by_number: dict[int, Releasable] = {}
        self._sooner = asyncio.Event()

    def look(self, partition: Releasable) -> None:
        """Something may be due in it earlier than was known."""
        office, next_ms = partition.office, partition.log.schedule.next_ms()
        if office is None or next_ms is None:
            return
        self._look_at(partition, office.monotonic_at(next_ms))

    def _look_at(self, partition: Releasable, at_s: float) -> None:
        known = self._agenda.get(partition)
        if known is not None and known[0] <= at_s:
            return
        self.forget(partition)
        entry = self._agenda[partition] = at_s, next(self._numbers)
        self._by_number[entry[1]] = partition
        heapq.heappush(self._queue, entry)
        if self._queue[0] is entry:
            self._sooner.set()

    def forget(self, partition: Releasable) -> None:
        """It is led here no longer."""
        known = self._agenda.pop(partition, None)
        if known is not None:
            del self._by_number[known[1]]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wait()
            now_s = self._clock.monotonic()
            while self._queue and self._queue[0][0] <= now_s:
                partition = self._by_number.get(heapq.heappop(self._queue)[1])
                if partition is not None:
                    self.forget(partition)
                    await self._turn(partition)

    async def _wait(self) -> None:
        """Until the first entry of the agenda is due, or there is an earlier one."""
        while not self._queue or self._queue[0][0] > self._clock.monotonic():
            self._sooner.clear()
            timer = None
            if self._queue:
                wait_s = max(0.0, self._queue[0][0] - self._clock.monotonic())
                timer = self._clock.call_later(wait_s, self._sooner.set)
            try:
                await self._sooner.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    async def _turn(self, partition: Releasable) -> None:
        again_s: float | None = _FAILED_S
        try:
            again_s = await self._release_some(partition)
        except KafkaError as error:
            logger.warning("%s: delayed records are not released, trying again: %s", partition, error)
        except Exception:  # a fault in one partition's files or code must not reach the others
            logger.exception("%s: delayed records are not released, trying again", partition)
        if again_s is not None and partition.office is not None:
            self._look_at(partition, self._clock.monotonic() + again_s)
        else:
            self.look(partition)
        await asyncio.sleep(0)

    async def _release_some(self, partition: Releasable) -> float | None:
        """Release one piece. In how many seconds the next is to be looked at; None: when it is due."""
        office = partition.office
        if office is None:
            return None
        schedule = partition.log.schedule
        dues, more = schedule.due(office.now_ms(), _AT_ONCE, partition.last_stable_offset)
        if not dues:
            next_ms = schedule.next_ms()
            if more:
                return 0.0
            return _BLOCKED_S if next_ms is not None and next_ms <= office.now_ms() else None
        found = await self.notes.bodies(partition.log, dues)
        if partition.office is not office:
            return None
        if all(_is_still_due(partition.log, due) for due in dues):
            now_ms = office.now_ms()
            records, count = release(dues, found, partition.log.config, self._clock.now_ms(), now_ms)
            partition.append_notes(records)
            for due in dues[:count]:
                partition.lateness.seen(now_ms - due.due_ms)
        return 0.0


def _is_still_due(log: PartitionLog, due: Due) -> bool:
    return log.schedule.due_of(due.id) == due.due_ms and log.schedule.note_of(due.id) == due.note
