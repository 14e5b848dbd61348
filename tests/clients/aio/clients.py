"""What the aiokafka tests work with: clients that are started when asked for, and bounded reading.

One `Clients` belongs to one test and to its event loop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import ConsumerRecord

Shares = list[set[tuple[str, int]]]
T = TypeVar("T")

DEADLINE_S = 30.0


class Clients:
    def __init__(self, bootstrap: str, unique: Callable[[str], str]) -> None:
        self.bootstrap = bootstrap
        self.unique = unique
        self._stops: list[Callable[[], Awaitable[None]]] = []
        self._admin: AIOKafkaAdminClient | None = None

    async def admin(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await self._admin.start()
            self._stops.append(self._admin.close)
        return self._admin

    async def topic(self, partitions: int = 1, name: str = "", **config: str) -> str:
        name = name or self.unique("topic")
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        admin = await self.admin()
        answer = await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=dotted)])
        assert [error[1] for error in answer.topic_errors] == [0], answer

        async def known() -> bool:
            return len((await admin.describe_topics([name]))[0]["partitions"]) == partitions

        # Kafka answers before every broker has heard of the topic.
        await until(f"{name} is known", known)
        return name

    async def producer(self, **config: Any) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, **config)
        await producer.start()
        self._stops.append(producer.stop)
        return producer

    async def consumer(self, *topics: str, **config: Any) -> AIOKafkaConsumer:
        defaults: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.unique("group"),
            "client_id": f"member-{len(self._stops)}",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 500,
            "fetch_max_wait_ms": 100,
        }
        consumer = AIOKafkaConsumer(*topics, **(defaults | config))
        await consumer.start()
        self._stops.append(consumer.stop)
        return consumer

    async def stop(self) -> None:
        while self._stops:
            await self._stops.pop()()


async def until(what: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Awaits `attempt` until it gives something true, and returns that."""
    give_up_at = time.monotonic() + DEADLINE_S
    while True:
        outcome = await attempt()
        if outcome:
            return outcome
        assert time.monotonic() < give_up_at, f"{what}: not so after {DEADLINE_S:g} s; last seen {outcome!r}"
        await asyncio.sleep(0.02)


async def read(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    """The next `count` records."""
    records: list[ConsumerRecord] = []

    async def enough() -> bool:
        for batch in (await consumer.getmany(timeout_ms=100, max_records=count - len(records))).values():
            records.extend(batch)
        return len(records) >= count

    await until(f"{count} records read", enough)
    return records


async def read_partition(
    consumer: AIOKafkaConsumer, topic: str, count: int, partition: int = 0, offset: int = 0
) -> list[ConsumerRecord]:
    place = TopicPartition(topic, partition)
    consumer.assign([place])
    consumer.seek(place, offset)
    return await read(consumer, count)


async def produce(producer: AIOKafkaProducer, topic: str, values: Iterable[Any], **fields: Any) -> list[Any]:
    """Produces the values and returns what the broker said of each."""
    sent = [await producer.send(topic, value, **fields) for value in values]
    return [await future for future in sent]


async def settle(members: list[AIOKafkaConsumer], fair: Callable[[Shares], bool]) -> Shares:
    """Waits until the members' shares look `fair`; this client rebalances in the background."""

    async def shares() -> Shares | None:
        held = [{(place.topic, place.partition) for place in member.assignment()} for member in members]
        return held if fair(held) else None

    return await until("the group shares out its partitions", shares) or []


def split_evenly(partitions: int) -> Callable[[Shares], bool]:
    """Every partition has exactly one holder, and nobody has two more than anybody else."""

    def fair(shares: Shares) -> bool:
        sizes = [len(share) for share in shares]
        return sum(sizes) == partitions == len(set().union(*shares)) and max(sizes) - min(sizes) <= 1

    return fair
