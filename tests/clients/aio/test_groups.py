"""Consumer groups of aiokafka members: shares, rebalances, static members, patterns."""

import re
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import NewPartitions
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.clients.aio.clients import Clients, produce, read, settle, split_evenly, until
from tests.clients.stories import story


@story("group-split")
async def test_three_members_split_six_partitions_and_read_everything_once(clients: Clients) -> None:
    topic, group = await clients.topic(partitions=6), clients.unique("group")
    members = [await clients.consumer(topic, group_id=group) for _ in range(3)]
    await settle(members, split_evenly(6))
    producer = await clients.producer()
    for number in range(60):
        await produce(producer, topic, [b"%d" % number], partition=number % 6)
    seen: list[int] = []

    async def all_seen() -> bool:
        for member in members:
            for batch in (await member.getmany(timeout_ms=50)).values():
                seen.extend(int(record.value) for record in batch)
        return len(seen) >= 60

    await until("60 messages reach the group", all_seen)
    assert sorted(seen) == list(range(60))


@pytest.mark.parametrize(
    "assignor",
    [
        pytest.param(RangePartitionAssignor, marks=story("range")),
        pytest.param(RoundRobinPartitionAssignor, marks=story("roundrobin")),
        pytest.param(StickyPartitionAssignor, marks=story("sticky")),
    ],
)
async def test_assignor_shares_two_topics_as_members_come_and_go(assignor: Any, clients: Clients) -> None:
    topics = [await clients.topic(partitions=2), await clients.topic(partitions=2)]
    group = clients.unique("group")
    members: list[AIOKafkaConsumer] = []
    for _ in range(2):
        members.append(await clients.consumer(*topics, group_id=group, partition_assignment_strategy=[assignor]))
        await settle(members, split_evenly(4))
    await members[1].stop()
    await settle(members[:1], split_evenly(4))


@story("group-leave")
async def test_member_that_leaves_is_replaced_and_one_that_joins_gets_a_share(clients: Clients) -> None:
    topic, group = await clients.topic(partitions=4), clients.unique("group")
    stays = await clients.consumer(topic, group_id=group)
    leaves = await clients.consumer(topic, group_id=group)
    await settle([stays, leaves], split_evenly(4))
    await leaves.stop()
    await settle([stays], split_evenly(4))
    comes = await clients.consumer(topic, group_id=group)
    await settle([stays, comes], split_evenly(4))


class Revocations(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.count = 0

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.count += 1

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass


@story("static-member")
async def test_static_member_comes_back_to_its_partitions_without_a_rebalance(clients: Clients) -> None:
    topic, group = await clients.topic(partitions=4), clients.unique("group")
    revocations = Revocations()
    stays = await clients.consumer(group_id=group, group_instance_id="stays", session_timeout_ms=20_000)
    stays.subscribe([topic], listener=revocations)
    restarts = await clients.consumer(topic, group_id=group, group_instance_id="restarts", session_timeout_ms=20_000)
    kept, moved = await settle([stays, restarts], split_evenly(4))
    revocations.count = 0
    await restarts.stop()
    again = await clients.consumer(topic, group_id=group, group_instance_id="restarts", session_timeout_ms=20_000)
    assert await settle([stays, again], split_evenly(4)) == [kept, moved]
    assert revocations.count == 0


@story("regex")
async def test_regex_subscription_finds_a_topic_made_later(clients: Clients) -> None:
    prefix = clients.unique("family")
    consumer = await clients.consumer()
    consumer.subscribe(pattern=f"^{re.escape(prefix)}-.*")
    await clients.topic(name=f"{prefix}-one")
    await settle([consumer], split_evenly(1))
    await clients.topic(name=f"{prefix}-two")
    await clients.topic(name=f"not-{prefix}")
    await settle([consumer], split_evenly(2))
    await produce(await clients.producer(), f"{prefix}-two", [b"found"])
    assert (await read(consumer, 1))[0].value == b"found"


@story("partition-growth")
async def test_group_takes_over_added_partitions(clients: Clients) -> None:
    topic = await clients.topic(partitions=1)
    consumer = await clients.consumer(topic)
    await settle([consumer], split_evenly(1))
    await (await clients.admin()).create_partitions({topic: NewPartitions(3)})
    await settle([consumer], split_evenly(3))


@story("commit")
@pytest.mark.parametrize("kind", ["explicit", "on-stop"])
async def test_next_member_resumes_where_the_last_one_committed(kind: str, clients: Clients) -> None:
    topic, group = await clients.topic(), clients.unique("group")
    await produce(await clients.producer(), topic, [b"%d" % number for number in range(10)])
    first = await clients.consumer(topic, group_id=group, enable_auto_commit=kind == "on-stop")
    await read(first, 4)
    if kind == "explicit":
        await first.commit()
    await first.stop()
    second = await clients.consumer(topic, group_id=group)
    assert (await read(second, 1))[0].value == b"4"


@story("commit")
async def test_committed_offset_and_metadata_are_returned(clients: Clients) -> None:
    topic = await clients.topic(partitions=2)
    group = clients.unique("group")
    consumer = await clients.consumer(group_id=group)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.assign([zero, one])
    await consumer.commit({zero: (42, "über")})
    assert await consumer.committed(zero) == 42
    assert await consumer.committed(one) is None
    assert (await (await clients.admin()).list_consumer_group_offsets(group))[zero].metadata == "über"
