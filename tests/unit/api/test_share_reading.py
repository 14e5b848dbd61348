"""How a fetch of a share group waits, in virtual time: what wakes it, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headrace.api.contract import Caller, Peer
from headrace.api.reply_budget import ReplyBudget
from headrace.api.share_reading import ShareReading, Wanted, Yield
from headrace.log.reading import EMPTY, Slice
from headrace.model.share_state import NO_START
from headrace.replicas.host import ReplicaHost
from headrace.replicas.share.deliveries import ACCEPT, RELEASE
from headrace.replicas.waiters import Readers
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from tests.unit.replicas.share.leader import CONFIG, GROUP, PLACE, Leader, Led, acknowledge, play, take

CALLER = Caller(Peer("", 1, "", 2))


class Host:
    """One partition with batches of five records each."""

    def __init__(self, leader: Leader) -> None:
        self.led: Any = leader.led
        self.led.readers = Readers(leader.clock)
        self.led.leads, self.led.bytes_out = True, 0
        self.led.high_watermark = self.led.last_stable_offset = 0
        self.led.check_leader, self.led.read = self.check_leader, self.read
        self.led.log.aborted_txns = ()

    def find_by_id(self, topic_id: object, index: int) -> Led:
        return cast("Led", self.led)

    def check_leader(self, epoch: int) -> None:
        if not self.led.leads:
            raise KafkaError(ErrorCode.not_leader_or_follower)

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, stable: bool) -> Slice:
        data = b"".join(self.batch(first) for first in range(offset - offset % 5, self.led.high_watermark, 5))
        return Slice(len(data), kept=data) if data else EMPTY

    @staticmethod
    def batch(first: int) -> bytes:
        records = [Record(at, 0, None, b"x", ()) for at in range(first, first + 5)]
        return bytes(encode_batch(records, base_offset=first))

    def append(self) -> None:
        before, end = self.led.high_watermark, self.led.high_watermark + 5
        self.led.high_watermark = self.led.last_stable_offset = end
        self.led.readers.appended(100)
        self.led.readers.committed(before, end, end, self.led)


def wanted(member: str = "ann", **other: Any) -> Wanted:
    fields: dict[str, Any] = {"max_records": 100, "batch_size": 100, "min_bytes": 1, "max_bytes": 1 << 20}
    fields |= {"max_wait_s": 5.0, "strict": False} | other
    return Wanted(GROUP, member, [(PLACE.topic_id, 0)], **fields)


def reading_of(leader: Leader, host: Host) -> ShareReading:
    async def off_loop(work: Any) -> Any:
        return work()

    budget = ReplyBudget(1 << 20)
    return ShareReading(cast("ReplicaHost", host), leader.partitions, off_loop, leader.clock, 1 << 20, budget)


def ranges(yields: list[Yield]) -> list[tuple[int, int, int]]:
    return [(one.first, one.last, one.count) for found in yields for one in found.acquired]


async def begun(leader: Leader, reading: ShareReading, asked: Wanted) -> asyncio.Task[list[Yield]]:
    fetch = asyncio.ensure_future(reading.fetch(asked, CALLER, at_once=False))
    await leader.settle()
    return fetch


def test_a_fetch_in_vain_leaves_nothing_behind() -> None:
    async def story(leader: Leader) -> None:
        host, live = Host(leader), await leader.open()
        reading = reading_of(leader, host)
        fetch = await begun(leader, reading, wanted())
        assert len(live.waiters) == 1
        assert await fetch == []
        assert leader.clock.monotonic() == pytest.approx(5.0)
        gone = await begun(leader, reading, wanted())
        gone.cancel()
        await leader.settle()
        assert live.waiters == {}
        assert not host.led.readers._committed.wanting

    play(story)


def test_a_fetch_is_woken_by_records_by_a_release_and_by_a_lock_that_runs_out() -> None:
    async def story(leader: Leader) -> None:
        host, live = Host(leader), await leader.open()
        reading = reading_of(leader, host)
        fetch = await begun(leader, reading, wanted())
        host.append()
        assert ranges(await fetch) == [(0, 4, 1)]
        fetch = await begun(leader, reading, wanted("bob", max_wait_s=60.0))
        await acknowledge(live, "ann", 1, 1, RELEASE)
        assert ranges(await fetch) == [(1, 1, 2)]
        fetch = await begun(leader, reading, wanted("cid", max_wait_s=60.0))
        assert ranges(await fetch)[0] == (0, 0, 2)
        assert leader.clock.monotonic() == pytest.approx(CONFIG.share_record_lock_ms / 1000, abs=0.2)

    play(story)


def test_a_fetch_is_woken_when_locks_are_free_again() -> None:
    async def story(leader: Leader) -> None:
        host, live = Host(leader), await leader.open()
        for _ in range(40):
            host.append()
        reading = reading_of(leader, host)
        take(live, "ann", 0, 99)
        fetch = await begun(leader, reading, wanted("bob"))
        assert not fetch.done()
        await acknowledge(live, "ann", 0, 9, ACCEPT)
        assert ranges(await fetch) == [(100, 109, 1)]
        assert leader.clock.monotonic() < 1

    play(story)


def test_a_fetch_waits_for_the_stored_state_and_ends_with_the_leadership() -> None:
    async def story(leader: Leader) -> None:
        host = Host(leader)
        host.append()
        leader.states.unreadable = ErrorCode.coordinator_not_available
        await leader.open(NO_START)
        leader.config = type(CONFIG)(share_auto_offset_reset="earliest")
        fetch = await begun(leader, reading_of(leader, host), wanted())
        assert not fetch.done()
        leader.states.unreadable = None
        assert ranges(await fetch) == [(0, 4, 1)]
        fetch = await begun(leader, reading_of(leader, host), wanted())
        host.led.leads = False
        leader.partitions.on_leadership("orders", 0, False, 3)
        (found,) = await fetch
        assert found.error is not None
        assert found.error.code is ErrorCode.not_leader_or_follower

    play(story)
