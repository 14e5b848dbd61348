"""Who is in sync: replicas leave when they fall behind and come back, and what that means for those who write."""

from __future__ import annotations

import asyncio

import pytest

from headrace.log.appended import Appended
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.batches import batch
from tests.unit.replicas.trio import Node, Trio, play


def write(node: Node, count: int = 1) -> tuple[Appended, asyncio.Future[None] | None]:
    partition = node.partition
    partition.check_enough_replicas()
    appended = partition.append(batch(count))
    return appended, partition.committed(appended)


async def commit(node: Node, count: int = 1) -> None:
    waiting = write(node, count)[1]
    if waiting is not None:
        await waiting


async def code_of(waiting: asyncio.Future[None] | None) -> ErrorCode:
    assert waiting is not None
    with pytest.raises(KafkaError) as error:
        await waiting
    return error.value.code


def cut_off(trio: Trio, broker_id: int) -> None:
    for other in {1, 2, 3} - {broker_id}:
        trio.network.cut(f"broker-{broker_id}", f"broker-{other}")


def test_a_replica_that_falls_behind_leaves_and_writes_go_on_and_it_comes_back() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        await commit(one)
        cut_off(trio, 3)
        waiting = write(one)[1]
        assert waiting is not None
        await waiting
        assert trio.state.isr == (1, 2), "the write went through only because the one behind was left out"
        await commit(one, 5)
        assert trio.state.leader_epoch == 0, "the epoch stays"
        trio.network.mend()
        await trio.until(lambda: set(trio.state.isr) == {1, 2, 3}, "it joins again")
        await trio.alike()
        assert (one.partition.isr_changes.shrinks, one.partition.isr_changes.expands) == (1, 1)

    play(story, min_insync_replicas=2)


def test_a_replica_on_a_line_a_hundred_times_slower_does_not_hold_up_the_others_for_long() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        await commit(one)
        for source, target in (("broker-1", "broker-3"), ("broker-3", "broker-1")):
            trio.network.slow(source, target, 1.0)

        async def load() -> None:
            while True:
                one.partition.append(batch(value=b"x" * 1000))
                await trio.clock.sleep(0.05)

        writing = asyncio.ensure_future(load())
        try:
            await trio.until(lambda: trio.state.isr == (1, 2), "the slow one is left out")
            started = trio.clock.monotonic()
            for _ in range(20):
                await commit(one)
            assert trio.clock.monotonic() - started < 5
            trio.network.mend()
            await trio.until(lambda: len(trio.state.isr) == 3, "it joins while others write")
        finally:
            writing.cancel()
        await trio.alike()

    play(story, lag_s=1.5, min_insync_replicas=2)


def test_a_replica_that_is_too_many_messages_behind_leaves_at_once() -> None:
    async def story(trio: Trio) -> None:
        await commit(trio.nodes[1])
        cut_off(trio, 2)
        started = trio.clock.monotonic()
        await commit(trio.nodes[1], 11)
        assert trio.state.isr == (1, 3)
        assert trio.clock.monotonic() - started < 5

    play(story, lag_s=1000.0, headrace_replica_lag_max_messages=10)


def test_without_enough_in_sync_nothing_is_committed_and_everybody_is_told() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        await commit(one, 2)
        cut_off(trio, 2)
        cut_off(trio, 3)
        assert await code_of(write(one)[1]) is ErrorCode.not_enough_replicas_after_append
        assert trio.state.isr == (1,)
        assert [broker for broker, _ in trio.state.elr] == [2, 3]
        with pytest.raises(KafkaError) as error:
            write(one)
        assert error.value.code is ErrorCode.not_enough_replicas
        one.partition.append(batch())  # as with acks=1
        assert one.partition.high_watermark == 2
        trio.network.mend()
        await trio.alike()
        assert one.partition.high_watermark == 4

    play(story, min_insync_replicas=2)


def test_while_a_change_is_under_way_both_sets_count() -> None:
    async def story(trio: Trio) -> None:
        one, three = trio.nodes[1], trio.nodes[3]
        await commit(one)
        cut_off(trio, 3)
        await commit(one)
        assert trio.state.isr == (1, 2)
        trio.network.mend()
        trio.writes_lost = True  # it joins, and its leader does not hear of that
        await trio.until(lambda: set(trio.state.isr) == {1, 2, 3}, "it is stored that it joined")
        assert one.partition.in_sync == 2
        cut_off(trio, 3)
        _, waiting = write(one)
        assert waiting is not None
        await trio.clock.sleep(5)
        assert not waiting.done(), "the third may be elected, and does not have it"
        trio.writes_lost = False
        trio.publish()
        await waiting
        assert three.partition.log.end_offset < one.partition.high_watermark
        assert trio.state.isr == (1, 2)

    play(story)


def test_a_leader_alone_under_load_lets_a_replica_catch_up() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        await commit(one)
        cut_off(trio, 2)
        cut_off(trio, 3)
        await commit(one)
        assert trio.state.isr == (1,)
        trio.network.mend()

        async def load() -> None:
            while True:
                one.partition.append(batch())
                await trio.clock.sleep(0.002)

        writing = asyncio.ensure_future(load())
        try:
            await trio.until(lambda: len(trio.state.isr) == 3, "both join although the leader never rests")
        finally:
            writing.cancel()

    play(story)


def test_a_replica_that_was_started_again_is_out_until_it_has_caught_up() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        await commit(one, 3)
        await two.stop(crash=True)
        await two.start()
        trio.publish()
        await commit(one)
        await trio.until(lambda: trio.state.isr_epochs[trio.state.isr.index(2)] == 2, "its new life is in sync")
        await trio.alike()

    play(story)


def test_a_replica_that_registers_anew_without_a_restart_joins_again() -> None:
    async def story(trio: Trio) -> None:
        await commit(trio.nodes[1])
        await trio.alike()
        three = trio.nodes[3]
        three.epoch += 1
        trio.store(isr=(1, 2), isr_epochs=(1, 1))
        three.host.registered(three.epoch)
        await trio.until(lambda: (3, 2) in zip(trio.state.isr, trio.state.isr_epochs, strict=True), "it is in sync")

    play(story)


def test_a_join_that_the_store_refuses_is_tried_again_and_not_at_once() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        cut_off(trio, 3)
        await commit(one)
        trio.network.mend()
        trio.refuse_joins = True
        await trio.clock.sleep(10)
        assert trio.state.isr == (1, 2)
        assert 3 <= trio.joins_refused <= 12
        trio.refuse_joins = False
        await trio.until(lambda: len(trio.state.isr) == 3, "it joins")

    play(story)


def test_a_leader_whose_change_meets_another_leader_steps_down() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        await commit(one)
        cut_off(trio, 1)
        trio.hidden_from = {1}
        _, waiting = write(one)
        trio.elect(2, isr=(2, 3))
        assert await code_of(waiting) is ErrorCode.not_leader_or_follower
        assert not one.partition.leads
        trio.nodes[1].see(trio.nodes[1]._image)
        assert not one.partition.leads, "and does not lead again in that epoch"

    play(story, min_insync_replicas=2)


def test_a_new_leader_takes_nobody_in_who_lacks_records_of_earlier_epochs() -> None:
    async def story(trio: Trio) -> None:
        two = trio.nodes[2]
        await commit(trio.nodes[1])
        cut_off(trio, 3)
        trio.nodes[1].partition.append(batch(4))
        await trio.until(lambda: two.partition.log.end_offset == 5, "the second has it, and it is not committed")
        await trio.nodes[1].stop(crash=True)
        trio.elect(2, isr=(2,))
        assert two.partition.leadership is not None
        two.partition.leadership.fetched(3, 1, 1, 5, trio.clock.monotonic())
        two.partition.review()
        await trio.clock.sleep(0.1)
        assert trio.state.isr == (2,)
        trio.network.mend()
        await trio.until(lambda: trio.state.isr == (2, 3), "it joins with everything")

    play(story)
