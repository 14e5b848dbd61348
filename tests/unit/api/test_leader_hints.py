"""A client that comes to the wrong broker is told so, and who the right one is and where (KIP-951)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headrace.api.contract import Caller, Peer, Request
from headrace.api.gate import Gate
from headrace.api.list_offsets import ListOffsets
from headrace.api.long_appends import LongAppends
from headrace.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from headrace.api.pieces import settled
from headrace.api.produce import Produce
from headrace.api.transactional_produce import TransactionalProduce
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message, decode_request, encode_request
from sim.computing import SimComputing
from tests.unit.log.batches import batch
from tests.unit.replicas.trio import TOPIC, Node, Trio, play


async def epoch_ended(node: Node, version: int, replica_id: int | None, *, epoch: int, current: int = -1) -> Message:
    """Over bytes: a version may name no replica, and then stands for one."""
    part = Message(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    body = Message(topics=[Message(topic=TOPIC, partitions=[part])])
    if replica_id is not None:
        body.replica_id = replica_id
    sent = decode_request(23, version, memoryview(encode_request(23, version, body)))
    answer = await settled(
        OffsetForLeaderEpoch(node.host)(Request(23, version, "test", sent, Caller(Peer("", 0, "", 0))))
    )
    found: Message = answer.topics[0].partitions[0]
    return found


@pytest.mark.parametrize(("version", "replica_id"), [(2, None), (3, -1), (3, -2), (4, -1), (4, -2)])
def test_clients_ask_leaders_only_where_an_epoch_ended(version: int, replica_id: int | None) -> None:
    async def story(trio: Trio) -> None:
        trio.nodes[1].partition.append(batch(3))
        await trio.alike()
        trio.elect(2)
        trio.nodes[2].partition.append(batch(2))
        await trio.alike()
        ended = await epoch_ended(trio.nodes[2], version, replica_id, epoch=0, current=1)
        assert (ended.leader_epoch, ended.end_offset) == (0, 3)
        fenced = await epoch_ended(trio.nodes[2], version, replica_id, epoch=0, current=0)
        assert fenced.error_code == ErrorCode.fenced_leader_epoch
        follower = await epoch_ended(trio.nodes[1], version, replica_id, epoch=0)
        assert follower.error_code == ErrorCode.not_leader_or_follower

    play(story)


async def produced(node: Node, acks: int = 1) -> Message:
    transactions, long_appends = TransactionalProduce(cast("Any", None)), LongAppends(SimComputing())
    produce = Produce(node.host, Gate(), node.hints, node.clock, transactions, long_appends)
    data = [Message(name=TOPIC, topic_id=None, partition_data=[Message(index=0, records=batch(1))])]
    return await node.ask(produce, 11, transactional_id=None, acks=acks, timeout_ms=1000, topic_data=data)


def hint(answer: Message, part: Message) -> tuple[Any, ...]:
    leader = part.current_leader
    return leader.leader_id, leader.leader_epoch, [(told.node_id, told.host) for told in answer.node_endpoints]


@pytest.mark.parametrize("replicas", [(1, 2, 3), (2, 3)], ids=["a follower", "not even a replica"])
def test_who_does_not_lead_says_who_does(replicas: tuple[int, ...]) -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        trio.store(replicas=replicas, isr=(2, 3), isr_epochs=(1, 1), leader=2, leader_epoch=1)
        answer = await one.fetched()
        part = answer.responses[0].partitions[0]
        assert part.error_code == ErrorCode.not_leader_or_follower
        assert hint(answer, part) == (2, 1, [(2, "broker-2")])
        answer = await produced(one)
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == ErrorCode.not_leader_or_follower
        assert hint(answer, part) == (2, 1, [(2, "broker-2")])

    play(story)


def test_a_partition_on_other_brokers_is_not_unknown_to_any_api() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        trio.store(replicas=(2, 3), isr=(2, 3), isr_epochs=(1, 1), leader=2, leader_epoch=1)
        asked = [Message(partition_index=0, current_leader_epoch=-1, timestamp=-1)]
        listed = await one.ask(
            ListOffsets(one.host, one.disk.off_loop),
            7,
            replica_id=-1,
            isolation_level=0,
            topics=[Message(name=TOPIC, partitions=asked)],
        )
        assert listed.topics[0].partitions[0].error_code == ErrorCode.not_leader_or_follower
        ended = await one.ask(
            OffsetForLeaderEpoch(one.host),
            4,
            replica_id=-1,
            topics=[
                Message(
                    topic=TOPIC,
                    partitions=[Message(partition=index, current_leader_epoch=-1, leader_epoch=0) for index in (0, 1)],
                )
            ],
        )
        codes = [part.error_code for part in ended.topics[0].partitions]
        assert codes == [ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition]
        answer = await one.fetched(index=1)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.unknown_topic_or_partition

    play(story)


def test_a_reader_of_an_earlier_epoch_hears_of_the_new_one() -> None:
    async def story(trio: Trio) -> None:
        trio.elect(2)
        answer = await trio.nodes[2].fetched(epoch=0)
        part = answer.responses[0].partitions[0]
        assert part.error_code == ErrorCode.fenced_leader_epoch
        assert hint(answer, part) == (2, 1, [(2, "broker-2")])

    play(story)


def test_who_loses_the_lead_while_a_producer_waits_says_who_has_it() -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        for other in (2, 3):
            trio.network.cut("broker-1", f"broker-{other}")
        trio.clock.call_later(0.1, lambda: trio.elect(2))
        answer = await produced(one, acks=-1)
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == ErrorCode.not_leader_or_follower
        assert hint(answer, part) == (2, 1, [(2, "broker-2")])

    play(story)
