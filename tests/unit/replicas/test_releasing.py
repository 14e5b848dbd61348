"""Leaders release delayed records when they are due, once, whoever leads by then; three real hosts, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.log.schedule import Due
from headrace.model.transaction_end import TransactionEnd
from headrace.replicas.lateness import Lateness
from headrace.replicas.office_clock import OfficeClock
from headrace.replicas.open_notes import OpenNotes
from headrace.replicas.partition import Partition
from headrace.wire.batches import TRANSACTIONAL, walk
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.loop import SimClock, run
from tests.unit.replicas.trio import Node, Trio, play

HOUR_MS = 3_600_000


def stage(story: Callable[[Trio], Coroutine[Any, Any, None]], **settings: object) -> None:
    play(story, headrace_delay_enable="true", min_insync_replicas=2, **settings)


def send(node: Node, value: bytes, delay_ms: int | None = None, **producer: int) -> int:
    """The offset that a producer is told."""
    headers = () if delay_ms is None else (("headrace.delay-ms", b"%d" % delay_ms),)
    encoded = encode_batch([Record(0, node.clock.now_ms(), b"k", value, headers)], **producer)
    return node.partition.append(memoryview(encoded), transactional=bool(producer.get("attributes"))).base_offset


def released(partition: Partition) -> list[tuple[bytes | None, int]]:
    """What consumers see of released records: (value, how late in ms)."""
    found: list[tuple[bytes | None, int]] = []
    offset = partition.log.start_offset
    while offset < partition.high_watermark:
        data = partition.log.read(
            offset, 1 << 20, partition.high_watermark, at_least_one=True, for_consumer=True
        ).load()
        for at, header in walk(data):
            offset = header.next_offset
            for record in [] if header.is_control else decode(data, at):
                due = dict(record.headers).get("headrace.scheduled.for")
                if due is not None:
                    found.append((record.value, record.timestamp - int(due)))
    return found


async def values(trio: Trio, node: Node, count: int) -> list[bytes | None]:
    await trio.until(lambda: len(released(node.partition)) >= count, f"{count} records are released", 200_000)
    await trio.clock.sleep(1)
    return [value for value, _ in released(node.partition)]


def test_records_are_released_on_time_and_all_replicas_agree() -> None:
    async def story(trio: Trio) -> None:
        leader = trio.nodes[1]
        for at in range(200):
            send(leader, b"%d" % at, 1000 + 37 * (at * 91 % 200))
        await values(trio, leader, 200)
        lateness = [late for _, late in released(leader.partition)]
        assert len(lateness) == 200
        assert min(lateness) >= 0
        assert max(lateness) < 100
        await trio.alike()
        for node in trio.nodes.values():
            schedule = node.partition.log.schedule
            assert (bool(schedule), schedule.released) == (False, 200)

    stage(story)


def test_whoever_leads_by_then_releases_it_once() -> None:
    async def story(trio: Trio) -> None:
        for turn in range(6):
            send(trio.nodes[trio.state.leader], b"%d" % turn, 20_000 + 1000 * turn)
            await trio.alike()
            trio.elect(turn % 3 + 1, isr=(1, 2, 3))
            await trio.clock.sleep(1)
        leader = trio.nodes[trio.state.leader]
        assert await values(trio, leader, 6) == [b"%d" % turn for turn in range(6)]
        trio.elect(2, isr=(1, 2, 3))
        await trio.clock.sleep(60)
        assert len(released(trio.nodes[2].partition)) == 6
        await trio.alike()

    stage(story)


def test_a_release_that_was_not_committed_is_repeated_by_the_next_leader() -> None:
    async def story(trio: Trio) -> None:
        send(trio.nodes[1], b"a", 5000)
        await trio.alike()
        trio.network.cut("broker-1", "broker-2")
        trio.network.cut("broker-1", "broker-3")
        trio.hidden_from = {1}
        trio.nodes[1].in_touch = True
        await trio.clock.sleep(6)
        assert trio.nodes[1].partition.log.schedule.released == 1
        assert not released(trio.nodes[1].partition)
        trio.elect(2, isr=(2, 3))
        assert await values(trio, trio.nodes[2], 1) == [b"a"]
        trio.network.mend()
        trio.hidden_from = set()
        trio.publish()
        await trio.alike()
        assert [value for value, _ in released(trio.nodes[1].partition)] == [b"a"]

    stage(story)


def test_a_restart_releases_what_came_due_meanwhile_in_order() -> None:
    async def story(trio: Trio) -> None:
        for value, delay_ms in ((b"c", 30_000), (b"a", 10_000), (b"b", 20_000)):
            send(trio.nodes[1], value, delay_ms)
        await trio.alike()
        for node in trio.nodes.values():
            await node.stop(crash=node.id == 1)
        await trio.clock.sleep(60)
        for node in trio.nodes.values():
            await node.start()
        trio.elect(1, isr=(1, 2, 3))
        assert await values(trio, trio.nodes[1], 3) == [b"a", b"b", b"c"]

    stage(story)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_jump_of_the_wall_clock_changes_nothing(jump_ms: int) -> None:
    async def story(trio: Trio) -> None:
        send(trio.nodes[1], b"a", 10_000)
        trio.clock.jump(jump_ms)
        send(trio.nodes[1], b"b", 10_000)
        await trio.clock.sleep(9)
        assert not released(trio.nodes[1].partition)
        await trio.clock.sleep(2)
        assert [value for value, _ in released(trio.nodes[1].partition)] == [b"a", b"b"]

    stage(story)


def test_what_is_not_decided_is_not_released_and_does_not_stop_others() -> None:
    async def story(trio: Trio) -> None:
        leader = trio.nodes[1]
        send(leader, b"first", 3000)
        send(leader, b"inside", 1000, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
        send(leader, b"behind", 1000)
        assert await values(trio, leader, 1) == [b"first"]
        await trio.clock.sleep(10)
        assert len(released(leader.partition)) == 1
        leader.partition.append_end(TransactionEnd(7, 1, 0, True, 2))
        assert await values(trio, leader, 3) == [b"first", b"inside", b"behind"]

    stage(story)


def test_very_many_of_one_moment_leave_turns_to_others() -> None:
    async def story(trio: Trio) -> None:
        leader = trio.nodes[1]
        headers = (("headrace.deliver-at", b"%d" % (leader.clock.now_ms() + 5000)),)
        for _ in range(10):
            records = [Record(at, leader.clock.now_ms(), None, b"x", headers) for at in range(1000)]
            leader.partition.append(memoryview(encode_batch(records)))
        seen: list[int] = []

        def watch() -> None:
            """Somebody else who wants a turn."""
            seen.append(leader.partition.log.schedule.released)
            if seen[-1] < 10_000 and len(seen) < 100_000:
                asyncio.get_running_loop().call_soon(watch)

        trio.clock.call_later(5.0001, watch)
        await trio.clock.sleep(6)
        assert seen[-1] == 10_000
        assert len(set(seen)) >= 20
        await trio.alike()

    stage(story)


def test_the_office_clock_follows_the_time_that_passes() -> None:
    async def story() -> None:
        clock = SimClock(1000)
        office = OfficeClock(clock)
        assert office.now_ms() == 1000
        clock.jump(-HOUR_MS)
        await clock.sleep(2)
        assert office.now_ms() == 3000
        await clock.sleep(office.monotonic_at(4000) - clock.monotonic())
        assert office.now_ms() == 4000

    run(story(), 1)


def test_lateness_is_a_histogram() -> None:
    lateness = Lateness()
    for late_ms in (-3, 0, 4, 90, 7_200_000):
        lateness.seen(late_ms)
    buckets = dict(lateness.buckets())
    assert (buckets["0.001"], buckets["0.005"], buckets["0.1"], buckets["3600.0"], buckets["+Inf"]) == (2, 3, 4, 4, 5)


def test_opened_notes_are_read_once_and_not_after_a_cut() -> None:
    async def story(trio: Trio) -> None:
        send(trio.nodes[1], b"a", HOUR_MS)
        log = trio.nodes[1].partition.log
        waits: list[object] = []

        async def off_loop(work: Any, *args: object) -> Any:
            waits.append(args)
            return work(*args)

        notes = OpenNotes(off_loop)
        (due,) = [Due(due_ms, key, note) for key, due_ms, note in log.schedule.pending.page(0, 9)]
        known = bytes((await notes.bodies(log, [due]))[0])
        assert bytes((await notes.bodies(log, [due]))[0]) == known
        log.truncate_to(0)
        send(trio.nodes[1], b"longer than it was", HOUR_MS)
        (other,) = await notes.bodies(log, [due])
        assert b"longer" in bytes(other)

    stage(story)
