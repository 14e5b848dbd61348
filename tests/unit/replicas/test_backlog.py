"""A change of thousands of partitions is followed in pieces, and ends where one change at a time would."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from headrace.replicas.backlog import AT_ONCE
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.replicas.test_host import Stage, play, topic

MANY = 20 * AT_ONCE


async def turns(stage: Stage) -> int:
    """How many turns the rest takes."""
    count = 0
    working = asyncio.ensure_future(stage.host.run())
    followed = asyncio.ensure_future(stage.host.followed())
    most, before = 0, len(stage.logs)
    while not followed.done():
        await asyncio.sleep(0)
        count += 1
        most, before = max(most, abs(len(stage.logs) - before)), len(stage.logs)
    working.cancel()
    assert most <= AT_ONCE, "in one turn of the event loop"
    return count


def test_thousands_of_partitions_are_opened_and_let_go_a_few_in_a_turn() -> None:
    async def story() -> None:
        stage = Stage()
        stage.see(topic("a", MANY))
        assert len(stage.logs) == AT_ONCE
        assert await turns(stage) >= MANY / AT_ONCE - 1
        assert len(stage.logs) == len(stage.hosted()) == MANY
        stage.see(without="a")
        assert stage.hosted() == []
        assert len(stage.logs) == MANY - AT_ONCE
        assert await turns(stage) >= MANY / AT_ONCE - 1
        assert len(stage.logs) == 0

    play(story)


def test_a_partition_that_waits_for_its_turn_is_asked_for_again() -> None:
    async def story() -> None:
        stage = Stage()
        stage.see(topic("a", MANY))
        with pytest.raises(KafkaError) as caught:
            stage.host.find("a", MANY - 1)
        assert caught.value.code is ErrorCode.not_leader_or_follower
        with pytest.raises(KafkaError) as caught:
            stage.host.find("a", MANY)
        assert caught.value.code is ErrorCode.unknown_topic_or_partition
        await turns(stage)
        assert stage.host.find("a", MANY - 1).leads

    play(story)


def test_a_topic_that_is_made_again_while_the_one_before_waits_has_logs_of_its_own() -> None:
    async def story() -> None:
        stage = Stage()
        first, second = topic("a", MANY), topic("a", MANY, settings={"retention.ms": "5"})
        second = replace(second, id=topic("other").id)
        stage.see(first)
        old = stage.host.find("a", 0).log
        stage.see(without="a")
        stage.see(second)
        await turns(stage)
        assert len(stage.hosted()) == len(stage.logs) == MANY
        assert stage.host.find("a", 0).log is not old
        assert {log.topic_id for _, log in stage.logs} == {second.id}
        assert stage.host.find("a", MANY - 1).log.config.retention_ms == 5

    play(story)


def test_changes_of_a_partition_that_waits_are_not_queued_twice() -> None:
    async def story() -> None:
        stage = Stage()
        for time in range(10):
            stage.see(topic("a", MANY, settings={"retention.ms": str(time + 1)}))
        assert len(stage.host._backlog) <= MANY
        await turns(stage)
        assert {stage.host.find("a", at).log.config.retention_ms for at in range(MANY)} == {10}

    play(story)
