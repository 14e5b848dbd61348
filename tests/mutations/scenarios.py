"""Scenarios that only the mutations need: what no other suite had a reason to play."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.cluster import election, znodes
from headrace.cluster.topic_changes import NewTopic
from headrace.model.image import NO_LEADER, BrokerImage, PartitionImage
from headrace.replicas.isr import Limits
from headrace.replicas.leadership import Leadership
from headrace.replicas.pulling import Pulled
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from sim.disk import SimDisk
from tests.unit.cluster.small_cluster import Cluster, tell
from tests.unit.log.batches import FOLDER, NOW, batch, open_log
from tests.unit.replicas.trio import Trio, play


def a_follower_that_has_not_heard_of_commits_cuts_nothing() -> None:
    """It may be elected before it has fetched again what it cut (KIP-101)."""

    async def story(trio: Trio) -> None:
        leader, follower = trio.nodes[1].partition, trio.nodes[2].partition
        waiting = leader.committed(leader.append(batch(4)))
        assert waiting is not None
        await waiting
        assert follower.high_watermark < follower.log.end_offset == 4
        pulled = Pulled(follower, 2)
        await pulled.reconcile(0, Message(error_code=ErrorCode.none, leader_epoch=0, end_offset=4))
        assert follower.log.end_offset == 4

    play(story)


def a_follower_of_a_new_leader_joins_with_all_of_earlier_epochs() -> None:
    """The new leader's high watermark lags: what lies between it and the start of its epoch may be committed."""
    state = PartitionImage(0, (1, 2, 3), (1, 3), 1, 4, 9, (0, 0))
    alive = {broker: BrokerImage(broker, "host", 9092, None, 0) for broker in (1, 2, 3)}
    leadership = Leadership(state, 1, 10, 0.0)
    leadership.fetched(2, 0, 5, 10, 1.0)
    assert leadership.change_due(10, 3, Limits(), alive, 1.0) is None
    leadership.fetched(2, 0, 10, 10, 2.0)
    due = leadership.change_due(10, 3, Limits(), alive, 2.0)
    assert due is not None
    assert due[1] == [(2, 0)]


def news_that_is_old_changes_no_role() -> None:
    async def story(trio: Trio) -> None:
        before = trio.state
        trio.elect(2)
        two = trio.nodes[2].partition
        assert two.leads
        two.apply(before)
        two.apply(replace(trio.state, isr=(2,), isr_epochs=(trio.nodes[2].epoch,), version=trio.state.version - 1))
        assert two.leads
        assert two.in_sync == 3

    play(story)


def a_short_write_leaves_no_bytes_behind() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.append(batch(), 0, now_ms=NOW)
    name = next(name for name in disk.list_dir(FOLDER) if name.endswith(".log"))
    size = disk.file_size(FOLDER / name)
    disk.room_bytes = 10
    with pytest.raises(KafkaError):
        log.append(batch(), 0, now_ms=NOW)
    assert disk.file_size(FOLDER / name) == size


def a_controller_that_was_replaced_unseen_changes_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        controller = await cluster.controller()
        store = await cluster.ensemble.connect("another")
        data, _ = await store.get(znodes.CONTROLLER_EPOCH)
        await store.set(znodes.CONTROLLER_EPOCH, data)  # as whoever takes office does
        with pytest.raises(KafkaError):
            await controller.create_topic(NewTopic("late", 1, 1))
        await store.sync()
        assert await store.exists(znodes.topic_path("late")) is None
        await store.close()

    tell(story)


def nobody_leads_while_one_who_was_in_sync_is_away() -> None:
    """Both were in sync and crashed. One is back, its log may lack what the other acknowledged."""
    partition = PartitionImage(0, (1, 2), (), NO_LEADER, 3, 7, last_known=(2, 1))
    alive = {1: BrokerImage(1, "one", 9092, None, 5, unbroken_since=5)}
    assert not election.can_recover(partition, alive, unclean=False)
    both = alive | {2: BrokerImage(2, "two", 9092, None, 5, unbroken_since=5)}
    assert election.can_recover(partition, both, unclean=False)


def a_broker_with_another_disk_is_not_eligible() -> None:
    """Not even where everything was synced before it was acknowledged."""
    partition = PartitionImage(0, (1, 2, 3), (), NO_LEADER, 3, 7, elr=((1, 4), (2, 4)))
    terms = election.Terms(min_isr=2, synced=frozenset({1, 2, 3}))
    crashed = {1: BrokerImage(1, "one", 9092, None, 6, unbroken_since=6, disk_since=0)}
    assert election.settled(partition, crashed, terms).leader == 1
    replaced = {1: BrokerImage(1, "one", 9092, None, 6, unbroken_since=6, disk_since=6)}
    assert election.settled(partition, replaced, terms).leader == NO_LEADER
