"""A setting of one broker wins over the one for all brokers, wherever the cluster room asks for settings."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headrace.cluster.election import settled, terms_of
from headrace.cluster.growth import careless
from headrace.cluster.setting_changes import SettingChange, SettingOperation
from headrace.cluster.tending import needed
from headrace.cluster.topic_changes import NewTopic, TopicDefaults
from headrace.model.image import (
    GROUP_OFFSETS_TOPIC,
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from headrace.model.settings_in_force import BrokerFile
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.cluster.controller_office import Office
from tests.unit.cluster.small_cluster import Cluster, tell

InOffice = Callable[..., None]

FILE = BrokerFile(1)
CRASHED = {number: BrokerImage(number, "", 0, None, 6, unbroken_since=6) for number in (2, 3)}
BOTH_LEFT = PartitionImage(0, (1, 2, 3), (), NO_LEADER, 3, 7, elr=((1, 4), (2, 4)))


def topic(state: PartitionImage = BOTH_LEFT, **settings: str) -> TopicImage:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return TopicImage("orders", uuid.UUID(int=1), (state,), dotted)


def image_with(topic: TopicImage, **settings: dict[str, str]) -> ClusterImage:
    """`all=...` for all brokers, `_2=...` for broker 2."""
    image = ClusterImage("c", 3, CRASHED).with_topics([topic])
    for name, values in settings.items():
        dotted = {name.replace("_", "."): value for name, value in values.items()}
        image = image.with_broker_settings("" if name == "all" else name[1:], dotted, 0)
    return image


def setting(name: str, value: str) -> list[SettingChange]:
    return [SettingChange(SettingOperation.SET, name, value)]


def test_a_crashed_replica_is_not_trusted_where_its_own_broker_did_not_sync() -> None:
    orders = topic(min_insync_replicas="2")
    image = image_with(orders, all={"headrace.flush": "fsync"}, _2={"headrace.flush": "page-cache"})
    after = settled(BOTH_LEFT, image.brokers, terms_of(orders, image, FILE))
    assert (after.leader, after.elr, after.last_known) == (NO_LEADER, ((1, 4),), (2,))


def test_a_crashed_replica_is_trusted_where_only_its_own_broker_synced() -> None:
    orders = topic(min_insync_replicas="2")
    image = image_with(orders, _2={"headrace.flush": "fsync"})
    ((_, after),) = needed(image, ["orders"], FILE)
    assert (after.leader, after.isr) == (2, (2,))


@pytest.mark.parametrize("flush", ["fsync", "page-cache"])
def test_what_the_topic_says_of_syncing_holds_on_every_broker(flush: str) -> None:
    orders = topic(headrace_flush=flush)
    image = image_with(orders, all={"headrace.flush": "page-cache"}, _2={"headrace.flush": "fsync"})
    assert terms_of(orders, image, FILE).synced == (frozenset({2, 3}) if flush == "fsync" else frozenset())


def test_the_broker_that_asks_judges_by_its_own_min_isr_and_unclean_election() -> None:
    orders = topic()
    own = {"min.insync.replicas": "3", "unclean.leader.election.enable": "true"}
    image = image_with(orders, all={"min.insync.replicas": "2"}, _1=own)
    mine, others = terms_of(orders, image, FILE), terms_of(orders, image, BrokerFile(2))
    assert (mine.min_isr, mine.unclean, others.min_isr, others.unclean) == (3, True, 2, False)


@pytest.mark.parametrize(("own", "eligible"), [("2", [2]), ("1", [])])
def test_a_leader_writes_its_isr_by_the_min_isr_that_is_set_on_itself(own: str, eligible: list[int]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("orders", assignments={0: [1, 2]}))
        controller = await cluster.controller()
        await controller.alter_settings("broker", "", setting("min.insync.replicas", "1" if own == "2" else "2"))
        await controller.alter_settings("broker", "1", setting("min.insync.replicas", own))
        await cluster.settled(lambda image: "1" in image.broker_settings)
        leader = cluster.members[1]
        before = leader.view.image.topics["orders"].partitions[0]
        alone = replace(before, isr=(1,), isr_epochs=(leader.epoch,))
        stored = await leader.isr.change("orders", alone, ())
        assert [broker for broker, _ in stored.elr] == eligible

    tell(story)


def test_two_replicas_in_sync_are_asked_for_unless_every_broker_says_otherwise() -> None:
    pair = PartitionImage(0, (2, 3), (2, 3), 2, 1, 1, (6, 6))
    offsets = replace(topic(pair), name=GROUP_OFFSETS_TOPIC)
    defaults = TopicDefaults(1, None, FILE)
    one, three = {"min.insync.replicas": "1"}, {"min.insync.replicas": "3"}
    assert list(careless(image_with(offsets), defaults)) == [GROUP_OFFSETS_TOPIC]
    assert list(careless(image_with(offsets, _2=one), defaults)) == [GROUP_OFFSETS_TOPIC]
    assert list(careless(image_with(offsets, _2=one, _3=three), defaults)) == []
    assert list(careless(image_with(offsets, all=one), defaults)) == []


def test_settings_of_a_topic_must_agree_with_those_of_the_controllers_own_broker(in_office: InOffice) -> None:
    async def story(room: Office) -> None:
        controller = room.controller
        await controller.create_topic(NewTopic("there"))
        await controller.alter_settings("broker", "1", setting("log.cleaner.max.compaction.lag.ms", "5"))
        longest = {"min.compaction.lag.ms": "9"}
        for asked in (
            controller.create_topic(NewTopic("new", settings=longest)),
            controller.alter_settings("topic", "there", setting("min.compaction.lag.ms", "9")),
        ):
            with pytest.raises(KafkaError, match=r"must not be greater than max\.compaction\.lag\.ms=5") as refused:
                await asked
            assert refused.value.code is ErrorCode.invalid_config

    in_office(story)
