"""The controller of several brokers: who is in office, and what it does when brokers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headrace.cluster import znodes
from headrace.cluster.topic_changes import NewTopic
from headrace.model.image import NO_LEADER, ClusterImage, PartitionImage
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.cluster.small_cluster import Cluster, Member, tell

THREE = NewTopic("orders", 6, 3)


def led(partition: PartitionImage) -> bool:
    return partition.leader != NO_LEADER


def everything_led_by(*brokers: int) -> Callable[[ClusterImage], bool]:
    def shows(image: ClusterImage) -> bool:
        return all(p.leader in brokers and set(p.isr) <= set(brokers) for p in image.topics["orders"].partitions)

    return shows


async def change_isr(member: Member, *isr: tuple[int, int], joins: tuple[tuple[int, int], ...] = ()) -> PartitionImage:
    now = member.view.image.topics["orders"].partitions[0]
    wanted = replace(now, isr=tuple(b for b, _ in isr), isr_epochs=tuple(e for _, e in isr))
    return await member.isr.change("orders", wanted, joins)


@pytest.mark.parametrize("seed", range(5))
def test_one_broker_is_the_controller_and_another_takes_over(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        first = await cluster.controller()
        assert sum(member.controller.in_office for member in cluster.members.values()) == 1
        old = cluster.members[1].view.image.controller_id
        await cluster.kill(old)
        image = await cluster.settled(lambda image: image.controller_id not in (-1, old))
        second = await cluster.controller()
        assert second is not first
        assert image.controller_id in cluster.members
        await cluster.create(NewTopic("orders", 6, 2))

    tell(story, seed=seed)


def test_partitions_added_by_hand_need_as_many_replicas_as_the_topic_has() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(THREE)
        controller = await cluster.controller()
        with pytest.raises(KafkaError, match="partition 6 has 1 replicas, others have 3") as refused:
            await controller.add_partitions("orders", 7, [[1]])
        assert refused.value.code is ErrorCode.invalid_replica_assignment
        assert len((await controller.add_partitions("orders", 7, [[1, 3, 2]])).partitions) == 7

    tell(story, seed=1)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_dead_broker_led_is_led_by_others_and_it_leaves_every_isr(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(THREE)
        epochs = {
            p.index: (p.leader, p.leader_epoch) for p in cluster.members[1].view.image.topics["orders"].partitions
        }
        await cluster.kill(1)
        image = await cluster.settled(everything_led_by(2, 3))
        for partition in image.topics["orders"].partitions:
            leader, epoch = epochs[partition.index]
            assert partition.leader_epoch == epoch + (leader == 1)
            assert not partition.elr

    tell(story, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_restart_is_seen_by_its_epoch_even_if_the_broker_was_never_seen_to_be_away(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(THREE)
        controller = cluster.members[1].view.image.controller_id
        victim = next(number for number in cluster.members if number != controller)
        await cluster.kill(victim)
        await cluster.start(victim)
        await cluster.settled(everything_led_by(*({1, 2, 3} - {victim})))
        await cluster.settled(lambda image: victim in image.brokers)

    tell(story, seed=seed)


def test_the_last_one_in_sync_comes_back_cleanly_and_leads_again() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2]}))
        await cluster.kill(2)
        alone = await cluster.partition("orders", 0, lambda p: p.isr == (1,))
        assert [broker for broker, _ in alone.elr] == [2]
        kept = await cluster.stop(1)
        nobody = await cluster.partition("orders", 0, lambda p: not led(p))
        assert (nobody.isr, {broker for broker, _ in nobody.elr}) == ((), {1, 2})
        await cluster.start(2)  # after a crash: it may lack something
        await cluster.partition("orders", 0, lambda p: p.last_known == (2,))
        await cluster.start(1, kept_epoch=kept)
        back = await cluster.partition("orders", 0, led)
        assert (back.leader, back.isr) == (1, (1,))

    tell(story)


def test_when_all_who_were_in_sync_crashed_the_longest_log_leads_once_all_are_back() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2]}))
        for number in (1, 2):
            await cluster.kill(number)
        await cluster.partition("orders", 0, lambda p: not led(p))
        await cluster.start(1)
        await cluster.partition("orders", 0, lambda p: p.last_known == (1,))
        cluster.ends[1] = {("orders", 0): (0, 5)}
        await cluster.start(2)
        await cluster.partition("orders", 0, lambda p: set(p.last_known) == {1, 2})
        await asyncio.sleep(3)  # broker 2 does not say how long its log is
        assert not led(cluster.members[3].view.image.topics["orders"].partitions[0])
        cluster.ends[2] = {("orders", 0): (0, 7)}
        back = await cluster.partition("orders", 0, led)
        assert (back.leader, back.isr, back.recovering) == (2, (2,), False)

    tell(story)


def test_an_unclean_election_happens_only_where_it_is_allowed_or_asked_for() -> None:
    async def story(cluster: Cluster) -> None:
        for name, unclean in (("orders", "false"), ("loose", "true")):
            settings = {"unclean.leader.election.enable": unclean}
            await cluster.create(NewTopic(name, assignments={0: [1, 3]}, settings=settings))
            now = cluster.members[1].view.image.topics[name].partitions[0]
            wanted = replace(now, isr=now.isr[:1], isr_epochs=now.isr_epochs[:1])
            cluster.ends[3] = {(name, 0): (0, 5)}
            await cluster.members[1].isr.change(name, wanted, ())
        cluster.ends[3] = {(name, 0): (0, 5) for name in ("orders", "loose")}
        last = cluster.members[3]
        await cluster.stop(2)
        # broker 3 crashed before broker 1 did, so it may lack what was acknowledged
        await cluster.kill(3)
        await cluster.start(3)
        await cluster.partition("orders", 0, lambda p: p.last_known == (3,))
        await cluster.kill(1)
        last = cluster.members[3]
        loose = await cluster.partition("loose", 0, lambda p: p.leader == 3)
        assert loose.recovering
        assert not led(last.view.image.topics["orders"].partitions[0])
        controller = await cluster.controller()
        assert controller.recovery.unclean_elections == 1
        assert (await controller.elect_leader("orders", 0, unclean=True)).leader == 3
        assert controller.recovery.unclean_elections == 2
        with pytest.raises(KafkaError) as refused:
            await controller.elect_leader("orders", 0, unclean=True)
        assert refused.value.code is ErrorCode.election_not_needed

    tell(story)


@pytest.mark.parametrize("seed", range(10))
def test_a_controller_whose_reply_is_lost_stays_or_is_replaced_and_nothing_is_half_done(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        controller = cluster.members[1].view.image.controller_id
        cluster.ensemble.lose_reply(f"broker-{controller}")
        asked = (await cluster.controller()).create_topic(THREE)
        with pytest.raises(KafkaError) as refused:
            await asked
        assert refused.value.code is ErrorCode.request_timed_out
        await cluster.create(NewTopic("after"))
        image = await cluster.settled(lambda image: "after" in image.topics)
        folders = cluster.ensemble.names_below(znodes.PARTITIONS)
        assert sorted(folders) == sorted(topic.id.hex for topic in image.topics.values())
        with pytest.raises(KafkaError) as again:
            await (await cluster.controller()).create_topic(THREE)
        assert again.value.code is ErrorCode.topic_already_exists

    tell(story, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_and_the_controller_write_to_one_partition_and_neither_is_lost(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2, 3]}))
        leader = cluster.members[1]
        smaller = asyncio.ensure_future(change_isr(leader, (1, leader.epoch), (2, cluster.members[2].epoch)))
        killed = asyncio.ensure_future(cluster.kill(3))
        await asyncio.gather(smaller, killed)
        state = await cluster.partition("orders", 0, lambda p: p.isr == (1, 2))
        assert (state.leader, state.leader_epoch) == (1, 0)

    tell(story, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_an_isr_write_whose_reply_is_lost_is_found_or_made_again(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2, 3]}))
        leader = cluster.members[1]
        if seed % 2:
            cluster.ensemble.lose_reply("broker-1")
        else:
            asyncio.get_running_loop().call_later(0.001, cluster.ensemble.break_connection, "broker-1")
        stored = await change_isr(leader, (1, leader.epoch), (2, cluster.members[2].epoch))
        assert (stored.isr, stored.version) == ((1, 2), 1)
        assert leader.view.image.topics["orders"].partitions[0] == stored

    tell(story, seed=seed)


def test_a_broker_that_was_started_again_cannot_join_under_its_old_epoch() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2]}))
        leader = cluster.members[1]
        old = cluster.members[2].epoch
        await change_isr(leader, (1, leader.epoch))
        await cluster.kill(2)
        fresh = await cluster.start(2)
        await cluster.partition("orders", 0, lambda p: p.last_known == (2,))
        refused = await change_isr(leader, (1, leader.epoch), (2, old), joins=((2, old),))
        assert refused.isr == (1,)
        joined = await change_isr(leader, (1, leader.epoch), (2, fresh.epoch), joins=((2, fresh.epoch),))
        assert (joined.isr, joined.isr_epochs, joined.elr) == ((1, 2), (leader.epoch, fresh.epoch), ())

    tell(story)


def test_a_leader_that_was_replaced_learns_it_from_its_write() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [2, 1]}))
        old = cluster.members[2]
        now = old.view.image.topics["orders"].partitions[0]
        store = await cluster.ensemble.connect("somebody")
        path = znodes.partition_path(old.view.image.topics["orders"].id, 0)
        await store.set(path, znodes.encode_partition(znodes.state_of(replace(now, leader=1, leader_epoch=1), 9)))
        with pytest.raises(KafkaError) as refused:
            await change_isr(old, (2, old.epoch))
        assert refused.value.code is ErrorCode.not_leader_or_follower
        await store.close()

    tell(story)


def test_a_topic_that_says_nothing_has_three_replicas_and_asks_for_two_in_sync() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", 4))
        topic = cluster.members[1].view.image.topics["orders"]
        assert [len(partition.replicas) for partition in topic.partitions] == [3] * 4
        assert topic.settings == {"min.insync.replicas": "2"}
        await cluster.create(NewTopic("single", 1, 1))
        assert cluster.members[1].view.image.topics["single"].settings == {}
        await cluster.create(NewTopic("own", 1, 3, settings={"min.insync.replicas": "3"}))
        assert cluster.members[1].view.image.topics["own"].settings == {"min.insync.replicas": "3"}

    tell(story, settings={"num.partitions": "1"})


@pytest.mark.parametrize("seed", range(3))
def test_internal_topics_grow_as_brokers_join(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        offsets = "__consumer_offsets"
        await cluster.create(NewTopic(offsets, 3))
        for number in (2, 3):
            fresh = await cluster.start(number)
            await cluster.settled(
                lambda image, n=number: all(n in p.replicas for p in image.topics[offsets].partitions)
            )
            for index in range(3):  # the leader sees that the new replica has caught up
                now = fresh.view.image.topics[offsets].partitions[index]
                wanted = replace(now, isr=(*now.isr, number), isr_epochs=(*now.isr_epochs, fresh.epoch))
                await fresh.isr.change(offsets, wanted, [(number, fresh.epoch)])
            await cluster.settled(lambda image: not any(p.adding for p in image.topics[offsets].partitions))
        image = await cluster.settled(lambda image: "min.insync.replicas" in image.topics[offsets].settings)
        for partition in image.topics[offsets].partitions:
            assert sorted(partition.replicas) == sorted(partition.isr) == [1, 2, 3]

    tell(story, brokers=1, seed=seed, settings={"num.partitions": "1"})
