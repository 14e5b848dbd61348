"""Elections and moves of partitions over the wire, in a cluster of several brokers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.api.alter_partition_reassignments import AlterPartitionReassignments
from headrace.api.describe_topic_partitions import DescribeTopicPartitions
from headrace.api.elect_leaders import ElectLeaders
from headrace.api.list_partition_reassignments import ListPartitionReassignments
from headrace.cluster.topic_changes import NewTopic
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.api.admin_room import ask
from tests.unit.cluster.small_cluster import Cluster, tell

ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, DESCRIBE = 43, 45, 46, 75


async def alter(cluster: Cluster, version: int, *moves: tuple[int, list[int] | None], **more: bool) -> dict[int, int]:
    handler = AlterPartitionReassignments(await cluster.controller(), cluster.clock)
    partitions = [Message(partition_index=index, replicas=replicas) for index, replicas in moves]
    topics = [Message(name="orders", partitions=partitions)]
    answer = await ask(handler, ALTER_REASSIGNMENTS, version, topics=topics, timeout_ms=5000, **more)
    assert answer.error_code == 0
    (told,) = answer.responses
    return {one.partition_index: one.error_code for one in told.partitions}


async def moving(cluster: Cluster, topics: list[Message] | None = None) -> list[tuple[int, list[int], list[int]]]:
    handler = ListPartitionReassignments(next(iter(cluster.members.values())).view)
    answer = await ask(handler, LIST_REASSIGNMENTS, 0, topics=topics, timeout_ms=5000)
    return [
        (one.partition_index, list(one.adding_replicas), list(one.removing_replicas))
        for topic in answer.topics
        for one in topic.partitions
    ]


async def catch_up(cluster: Cluster, index: int, broker: int) -> None:
    """As the leader does when it sees that a replica has everything."""
    member = cluster.members[broker]
    now = await cluster.partition("orders", index, lambda p: broker in p.replicas)
    wanted = replace(now, isr=(*now.isr, broker), isr_epochs=(*now.isr_epochs, member.epoch))
    await member.isr.change("orders", wanted, [(broker, member.epoch)])


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_moves_and_is_listed_until_it_has_arrived(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2], 1: [2, 3]}))
        assert await alter(cluster, version, (0, [3, 2])) == {0: 0}
        await cluster.partition("orders", 0, lambda p: bool(p.adding))
        assert await moving(cluster) == [(0, [3], [1])]
        assert await moving(cluster, [Message(name="orders", partition_indexes=[1, 7])]) == []
        await catch_up(cluster, 0, 3)
        arrived = await cluster.partition("orders", 0, lambda p: not p.adding)
        assert (arrived.replicas, arrived.leader, set(arrived.isr)) == ((3, 2), 3, {2, 3})
        assert await moving(cluster) == []

    tell(story)


def test_a_move_is_called_off_and_what_does_not_move_is_said() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2], 1: [2, 3]}))
        assert await alter(cluster, 1, (0, [3, 2])) == {0: 0}
        codes = await alter(cluster, 1, (0, None), (1, None), (9, [1]))
        assert codes == {
            0: 0,
            1: ErrorCode.no_reassignment_in_progress,
            9: ErrorCode.unknown_topic_or_partition,
        }
        back = await cluster.partition("orders", 0, lambda p: not p.adding)
        assert set(back.replicas) == {1, 2}

    tell(story)


def test_a_request_may_forbid_another_number_of_replicas() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2]}))
        codes = await alter(cluster, 1, (0, [1, 2, 3]), allow_replication_factor_change=False)
        assert codes == {0: ErrorCode.invalid_replication_factor}
        assert await alter(cluster, 1, (0, [1, 2, 3]), allow_replication_factor_change=True) == {0: 0}
        assert set((await alter(cluster, 1, (0, [1]), (0, [2]))).values()) == {ErrorCode.invalid_request}

    tell(story)


def test_who_is_not_the_controller_says_so_for_the_whole_request() -> None:
    async def story(cluster: Cluster) -> None:
        other = next(member for member in cluster.members.values() if not member.controller.in_office)
        handler = AlterPartitionReassignments(other.controller, cluster.clock)
        answer = await ask(handler, ALTER_REASSIGNMENTS, 0, topics=[], timeout_ms=5000)
        assert answer.error_code == ErrorCode.not_controller

    tell(story)


@pytest.mark.parametrize("version", range(3))
def test_the_preferred_replica_leads_again_when_it_is_asked_for(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2], 1: [2, 3]}))
        controller = await cluster.controller()
        await controller.move("orders", 0, [2, 1])
        handler = ElectLeaders(controller, cluster.members[1].view, cluster.clock)
        asked = {"topic_partitions": None, "timeout_ms": 5000}
        answer = await ask(handler, ELECT_LEADERS, version, **asked)
        (result,) = answer.replica_election_results
        assert [(one.partition_id, one.error_code) for one in result.partition_result] == [(0, 0)]
        state = await cluster.partition("orders", 0, lambda p: p.leader == 2)
        assert state.leader_epoch == 1

    tell(story)


def test_eligible_and_last_known_replicas_are_told() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2, 3]}))
        await cluster.kill(2)
        await cluster.kill(3)
        await cluster.partition("orders", 0, lambda p: len(p.elr) == 1)
        await cluster.start(2)
        await cluster.start(3)
        await cluster.partition("orders", 0, lambda p: not p.elr)
        asked = {"topics": [Message(name="orders")], "response_partition_limit": 10, "cursor": None}
        answer = await ask(DescribeTopicPartitions(cluster.members[1].view), DESCRIBE, 0, **asked)
        (told,) = answer.topics[0].partitions
        assert (list(told.eligible_leader_replicas), list(told.last_known_elr)) == ([], [2, 3])

    tell(story)
