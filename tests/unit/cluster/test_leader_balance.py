"""Leadership goes back to where it was planned, and not to and fro."""

from __future__ import annotations

import asyncio
import uuid

from msgspec.structs import replace

from headrace.cluster.leader_balance import due, ready
from headrace.cluster.topic_changes import NewTopic
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tests.unit.cluster.small_cluster import Cluster, tell


def image(epoch: int, *leaders: int) -> ClusterImage:
    """Partitions on brokers 1 and 2 that broker 1 should lead, and who does."""
    brokers = {1: BrokerImage(1, "", 0, None, epoch), 2: BrokerImage(2, "", 0, None, 20)}
    partitions = tuple(
        PartitionImage(index, (1, 2), (1, 2), leader, 5, 0, (epoch, 20)) for index, leader in enumerate(leaders)
    )
    return ClusterImage("c", 2, brokers).with_topics([TopicImage("t", uuid.UUID(int=1), partitions, {})])


def test_a_partition_is_given_back_when_its_broker_was_ready_for_two_looks() -> None:
    now = image(10, 2, 2, 1)
    assert due(now, {}, ready(now), 10) == []
    assert due(now, ready(now), ready(now), 10) == [("t", 0), ("t", 1)]


def test_a_broker_that_was_started_again_in_between_waits_once_more() -> None:
    before, now = image(10, 2, 2), image(11, 2, 2)
    assert due(now, ready(before), ready(now), 10) == []


def test_a_broker_that_is_not_in_sync_is_given_nothing() -> None:
    now = image(10, 2)
    topic = now.topics["t"]
    behind = replace(topic.partitions[0], isr=(2,), isr_epochs=(20,))
    assert ready(now.with_topics([replace(topic, partitions=(behind,))])) == {}


def test_a_little_is_tolerated() -> None:
    now = image(10, 2, *[1] * 9)
    assert due(now, ready(now), ready(now), 10) == []
    assert due(now, ready(now), ready(now), 9) == [("t", 0)]


def test_a_broker_leads_again_what_it_should_after_it_has_come_back() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}))
        await cluster.kill(1)
        await cluster.partition("orders", 0, lambda p: p.leader == 2)
        back = await cluster.start(1)
        for index in range(3):
            now = await cluster.partition("orders", index, lambda p: 1 not in p.isr)
            wanted = replace(now, isr=(*now.isr, 1), isr_epochs=(*now.isr_epochs, back.epoch))
            await back.isr.change("orders", wanted, [(1, back.epoch)])
        await asyncio.sleep(25)
        assert back.view.image.topics["orders"].partitions[0].leader == 2
        state = await cluster.partition("orders", 0, lambda p: p.leader == 1)
        assert state.leader_epoch == 2

    tell(story)
