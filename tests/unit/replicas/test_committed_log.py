"""A committed log by itself: what moves its high watermark, whom that wakes, and what its owner hears of syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from headrace.log.partition_log import PartitionLog
from headrace.model.topic_config import TopicConfig
from headrace.replicas.committed_log import CommittedLog
from headrace.replicas.waiters import Audience, Wanting
from headrace.wire.errors import ErrorCode, KafkaError
from sim import loop as sim_loop
from sim.disk import SimDisk
from sim.loop import SimClock
from tests.unit.log.batches import NOW, batch, open_log


class Owner:
    """Has a log with three records, of which `known` are committed."""

    def __init__(self, known: int = 0, *, fsync: bool = False) -> None:
        self.log = open_log(SimDisk(), TopicConfig(fsync=fsync))
        for _ in range(3):
            self.log.append(batch(), 0, now_ms=NOW)
        self.heard: list[str] = []
        self.syncs: list[asyncio.Future[None]] = []
        self.part = CommittedLog(
            self.log, known, SimClock(), self._sync, lambda: self.heard.append("synced"), self.heard.append
        )

    def _sync(self, _: PartitionLog) -> asyncio.Future[None]:
        self.syncs.append(asyncio.get_running_loop().create_future())
        return self.syncs[-1]

    def fetch(self) -> asyncio.Future[None]:
        """A consumer at the high watermark that waits for one byte."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.part.readers.enter(Wanting(1, done), Audience.COMMITTED, self.part)
        return done


def run(story: Coroutine[Any, Any, None]) -> None:
    sim_loop.run(story, 1)


def test_the_log_is_told_what_was_committed_before_the_last_stop() -> None:
    """Retention must not take more, whenever it comes."""

    async def story() -> None:
        owner = Owner(known=2)
        assert owner.log.committed_offset == 2

    run(story())


def test_an_advance_completes_the_commits_below_it_and_wakes_consumers() -> None:
    async def story() -> None:
        owner = Owner()
        fetch, waiting = owner.fetch(), [owner.part.committed_through(offset) for offset in (0, 1, 2)]
        owner.part.advance(2)
        assert [future is not None and future.done() for future in waiting] == [True, True, False]
        assert owner.part.committed_through(1) is None
        assert fetch.done(), "also by records from before the last start"

    run(story())


def test_the_high_watermark_goes_back_only_when_the_log_is_cut_and_stays_within_the_log() -> None:
    async def story() -> None:
        owner = Owner(known=9)
        assert owner.part.high_watermark == 3
        owner.part.advance(1)
        assert owner.part.high_watermark == 3
        with pytest.raises(AssertionError):
            owner.part.advance(4)
        owner.log.truncate_to(1)
        assert owner.part.cut_back(owner.log.end_offset) == 2, "records that were committed"
        assert owner.part.high_watermark == owner.part.last_stable_offset == 1

    run(story())


def test_one_sync_at_a_time_and_the_owner_hears_of_each() -> None:
    async def story() -> None:
        owner = Owner(fsync=True)
        stored = owner.part.stored_through(2)
        assert stored is not None
        owner.part.sync_soon()
        owner.part.sync_soon()
        assert len(owner.syncs) == 1
        owner.log.sync()
        owner.syncs[0].set_result(None)
        await asyncio.sleep(0)
        assert stored.done()
        assert (owner.heard, owner.part.own_end) == (["synced"], 3)
        owner.part.sync_soon()
        owner.syncs[1].set_exception(OSError("broken"))
        await asyncio.sleep(0)
        assert owner.heard[1].endswith("the disk failed to sync")

    run(story())


def test_whoever_waits_gets_the_error_when_the_leadership_ends() -> None:
    async def story() -> None:
        owner = Owner(fsync=True)
        fetch, waiting = owner.fetch(), [owner.part.committed_through(2), owner.part.stored_through(2)]
        owner.part.fail(KafkaError(ErrorCode.not_leader_or_follower))
        assert all(future is not None and future.exception() is not None for future in waiting)
        assert fetch.done()

    run(story())
