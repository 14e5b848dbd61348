"""Producers wake when their records are committed, consumers when enough has arrived."""

from __future__ import annotations

import asyncio
import gc

from headrace.replicas.waiters import CommitWaiters, FetchWaiters, Wanting
from headrace.wire.errors import ErrorCode, KafkaError


def test_a_commit_wakes_those_below_the_mark_and_no_others() -> None:
    async def story() -> list[bool]:
        waiters = CommitWaiters()
        futures = [waiters.wait_for(offset) for offset in (3, 7, 12)]
        waiters.advance(8)
        return [future.done() for future in futures]

    assert asyncio.run(story()) == [True, True, False]


def test_an_error_reaches_everybody_who_still_waits() -> None:
    async def story() -> object:
        waiters = CommitWaiters()
        early, late = waiters.wait_for(1), waiters.wait_for(5)
        waiters.advance(2)
        waiters.fail(KafkaError(ErrorCode.kafka_storage_error))
        assert early.exception() is None
        return late.exception()

    error = asyncio.run(story())
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.kafka_storage_error


def test_an_error_for_who_has_gone_is_no_news() -> None:
    async def story() -> list[str]:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        waiters = CommitWaiters()
        waiters.wait_for(1)
        waiters.fail(KafkaError(ErrorCode.not_leader_or_follower))
        gc.collect()
        return told

    assert asyncio.run(story()) == []


def test_a_fetch_wakes_once_enough_bytes_came_over_all_its_partitions() -> None:
    async def story() -> None:
        one, other = FetchWaiters(), FetchWaiters()
        wanting = Wanting(100, asyncio.get_running_loop().create_future())
        one.enter(wanting)
        other.enter(wanting)
        one.arrived(60)
        assert not wanting.done.done()
        other.arrived(40)
        assert wanting.done.done()
        one.leave(wanting)
        assert not one.wanting

    asyncio.run(story())
