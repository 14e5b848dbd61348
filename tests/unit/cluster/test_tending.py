"""What a death makes necessary is found for every partition, and those that nobody leads come first."""

from __future__ import annotations

import uuid

from headrace.cluster.tending import needed
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.model.settings_in_force import BrokerFile

ALIVE = {number: BrokerImage(number, "h", 9092, None, 0) for number in (1, 2)}


def test_partitions_without_a_leader_come_before_those_that_only_lose_a_replica() -> None:
    leaders = (1, 3, 2, 3, 1, 3)  # broker 3 is dead
    states = tuple(
        PartitionImage(index, (1, 2, 3), (1, 2, 3), leader, 4, 7, (0, 0, 0)) for index, leader in enumerate(leaders)
    )
    topics = {
        name: TopicImage(name, uuid.UUID(int=at), states, {"min.insync.replicas": "2"}) for at, name in enumerate("ab")
    }
    image = ClusterImage("c", 1, ALIVE, topics)

    found = list(needed(image, topics, BrokerFile(1)))

    assert [(name, state.index) for name, state in found] == [
        *(("a", index) for index in (1, 3, 5)),
        *(("b", index) for index in (1, 3, 5)),
        *(("a", index) for index in (0, 2, 4)),
        *(("b", index) for index in (0, 2, 4)),
    ]
    assert {(state.leader_epoch, state.isr) for _, state in found[:6]} == {(5, (1, 2))}
    assert {(state.leader_epoch, state.isr) for _, state in found[6:]} == {(4, (1, 2))}
