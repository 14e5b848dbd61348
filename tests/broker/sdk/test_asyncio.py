"""The asyncio clients: the same promises, an event loop that never waits, and a cancelled poll that loses nothing."""

import asyncio
from typing import Any

import pytest

from headrace.sdk import AsyncConsumer, AsyncProducer, NotDelivered, SdkError, WrongMoment
from headrace.testing.local_broker import LocalBroker

from .topics import create_topic, fill


async def read(reader: AsyncConsumer, count: int) -> list[int]:
    found: list[int] = []
    for _ in range(50):
        found += [int(message.text) for message in await reader.poll(count - len(found), timeout_s=0.2)]
        if len(found) == count:
            break
    return found


def test_many_sends_at_once_are_each_answered(broker: LocalBroker) -> None:
    create_topic(broker, "numbers")

    async def story() -> list[int]:
        async with AsyncProducer(broker.bootstrap, profile="latency") as producer:
            sends = (producer.send_and_wait("numbers", str(each), tags=["a"], id=str(each)) for each in range(300))
            return [receipt.offset for receipt in await asyncio.gather(*sends)]

    assert sorted(asyncio.run(story())) == list(range(300))


def test_leaving_the_block_delivers_what_is_queued(broker: LocalBroker) -> None:
    create_topic(broker, "numbers")

    async def story() -> list[int]:
        async with AsyncProducer(broker.bootstrap, linger_ms=5000) as producer:
            for number in range(50):
                await producer.send("numbers", str(number))
        async with AsyncConsumer(broker.bootstrap, "numbers", group="g") as reader:
            return await read(reader, 50)

    assert asyncio.run(story()) == list(range(50))


def test_a_failure_is_raised_where_it_is_awaited() -> None:
    async def story(**choices: Any) -> None:
        async with AsyncProducer("127.0.0.1:1", message_timeout_ms=50) as producer:
            with pytest.raises(NotDelivered):
                await producer.send_and_wait("numbers", "v")
            await producer.send("numbers", "v")
            with pytest.raises(NotDelivered, match="1 message is not delivered"):
                await producer.flush()
        with pytest.raises(WrongMoment, match="closed"):
            await producer.send("numbers", "v")

    asyncio.run(story())


def test_a_partitioner_learns_the_topic_off_the_loop(broker: LocalBroker) -> None:
    create_topic(broker, "numbers", 3)

    async def story() -> set[int]:
        async with AsyncProducer(broker.bootstrap, partitioner=lambda key, count: len(key or b"") % count) as producer:
            return {(await producer.send_and_wait("numbers", "v", key="k" * each)).partition for each in range(6)}

    assert asyncio.run(story()) == {0, 1, 2}


def test_iterating_acknowledges_as_it_goes(broker: LocalBroker) -> None:
    create_topic(broker, "numbers")
    fill(broker, "numbers", 10)

    async def story() -> list[int]:
        async with AsyncConsumer(broker.bootstrap, "numbers", group="g") as reader:
            async for message in reader:
                if message.text == "4":
                    break
        async with AsyncConsumer(broker.bootstrap, "numbers", group="g") as reader:
            return await read(reader, 6)

    assert asyncio.run(story()) == [4, 5, 6, 7, 8, 9]


def test_a_cancelled_poll_loses_nothing(broker: LocalBroker) -> None:
    create_topic(broker, "numbers")

    async def story() -> list[int]:
        async with AsyncConsumer(broker.bootstrap, "numbers", group="g") as reader:
            await reader.seek_to_start()  # the group has met
            waiting = asyncio.create_task(reader.poll(timeout_s=5))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.to_thread(fill, broker, "numbers", 10)
            return await read(reader, 10)

    assert asyncio.run(story()) == list(range(10))


def test_seeking_pausing_committing(broker: LocalBroker) -> None:
    create_topic(broker, "numbers")
    fill(broker, "numbers", 10)

    async def story() -> None:
        async with AsyncConsumer(broker.bootstrap, "numbers", group="g", auto_ack=False, in_flight_limit=3) as reader:
            await reader.seek("numbers", 0, 8)
            assert await read(reader, 2) == [8, 9]
            await reader.seek_to_start()
            assert await reader.assignment() == [("numbers", 0)]
            await reader.pause()
            assert await reader.poll(timeout_s=0.2) == []
            await reader.resume()
            found = []
            for _ in range(50):
                found += await reader.poll(10, timeout_s=0.2)
                if found:
                    break
            assert len(found) <= 3
            reader.ack(*found)
            assert reader.in_flight == 0
            await reader.seek_to_time(0)
            await reader.seek_to_end()
            await reader.commit()
            with pytest.raises(SdkError, match="not assigned"):
                await reader.seek("numbers", 9, 0)

    asyncio.run(story())
