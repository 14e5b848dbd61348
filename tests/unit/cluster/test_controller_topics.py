"""Topics and partitions, asked of the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace.cluster import znodes
from headrace.cluster.controller import Controller
from headrace.cluster.store import SessionLost, StoreFull
from headrace.cluster.topic_changes import NewTopic
from headrace.model.image import ClusterImage
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.cluster.controller_office import Office

InOffice = Callable[..., None]


async def refused(asked: asyncio.Future[object]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await asked
    assert caught.value.message
    return caught.value


def test_a_created_topic_is_in_the_image_when_the_call_returns(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        seen: list[tuple[ClusterImage, ClusterImage]] = []
        office.view.subscribe(lambda old, new: seen.append((old, new)))
        made = await office.controller.create_topic(NewTopic("orders", 3, 1, settings={"retention.ms": "5000"}))
        assert office.view.image.topics["orders"] == made
        assert office.view.image.topics_by_id[made.id] is office.view.image.topics["orders"]
        assert [(p.index, p.leader, p.isr, p.leader_epoch) for p in made.partitions] == [
            (n, 1, (1,), 0) for n in range(3)
        ]
        assert [("orders" in old.topics, "orders" in new.topics) for old, new in seen] == [(False, True)]

    in_office(story)


def test_topics_outlive_a_restart_and_their_leader_epoch_rises(in_office: InOffice) -> None:
    ids = []

    async def before(office: Office) -> None:
        ids.append((await office.controller.create_topic(NewTopic("orders", 2, settings={"segment.ms": "7"}))).id)

    async def after(office: Office) -> None:
        topic = office.view.image.topics["orders"]
        assert topic.id == ids[0]
        assert topic.settings == {"segment.ms": "7"}
        assert [(p.leader, p.leader_epoch, p.version) for p in topic.partitions] == [(1, 1, 1), (1, 1, 1)]
        grown = await office.controller.add_partitions("orders", 3)
        assert [p.leader_epoch for p in grown.partitions] == [1, 1, 0]

    async def again(office: Office) -> None:
        assert [p.leader_epoch for p in office.view.image.topics["orders"].partitions] == [2, 2, 1]

    in_office(before, after, again)


def test_defaults_fill_what_a_new_topic_leaves_open(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        assert len((await office.controller.create_topic(NewTopic("orders"))).partitions) == 4

    in_office(story, partitions=4)


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("bad name"), ErrorCode.invalid_topic_exception),
        (NewTopic(".."), ErrorCode.invalid_topic_exception),
        (NewTopic("x" * 250), ErrorCode.invalid_topic_exception),
        (NewTopic("there"), ErrorCode.topic_already_exists),
        (NewTopic("the.re"), ErrorCode.invalid_topic_exception),
        (NewTopic("new", 0), ErrorCode.invalid_partitions),
        (NewTopic("new", -2), ErrorCode.invalid_partitions),
        (NewTopic("new", 10_001), ErrorCode.policy_violation),
        (NewTopic("new", 1, 2), ErrorCode.invalid_replication_factor),
        (NewTopic("new", 1, 0), ErrorCode.invalid_replication_factor),
        (NewTopic("new", 1, 1, {0: [1]}), ErrorCode.invalid_request),
        (NewTopic("new", assignments={1: [1]}), ErrorCode.invalid_replica_assignment),
        (NewTopic("new", assignments={0: [7]}), ErrorCode.invalid_replica_assignment),
        (NewTopic("new", assignments={0: [1, 1]}), ErrorCode.invalid_replica_assignment),
        (NewTopic("new", assignments={0: []}), ErrorCode.invalid_replica_assignment),
        (NewTopic("new", settings={"retention.mss": "1"}), ErrorCode.invalid_config),
        (NewTopic("new", settings={"retention.ms": "soon"}), ErrorCode.invalid_config),
        (NewTopic("new", settings={"retention.ms": None}), ErrorCode.invalid_config),
        (
            NewTopic("new", settings={"headrace.delay.enable": "true", "cleanup.policy": "compact"}),
            ErrorCode.invalid_config,
        ),
        (NewTopic("new", settings={"headrace.ttl.dlq": "late"}), ErrorCode.invalid_config),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(
    in_office: InOffice, new: NewTopic, code: ErrorCode
) -> None:
    async def story(office: Office) -> None:
        await office.controller.create_topic(NewTopic("the_re"))
        await office.controller.create_topic(NewTopic("there"))
        assert (await refused(office.controller.create_topic(new))).code is code
        assert set(office.view.image.topics) == {"there", "the_re"}

    in_office(story)


def test_calls_take_effect_in_their_order_without_waiting(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        ask = office.controller
        calls: list[asyncio.Future[object]] = [
            ask.create_topic(NewTopic("a")),
            ask.create_topic(NewTopic("a")),
            ask.add_partitions("a", 2),
            ask.delete_topic("a"),
            ask.create_topic(NewTopic("a", 5)),
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(outcome, "code", None) for outcome in outcomes] == [
            None,
            ErrorCode.topic_already_exists,
            *[None] * 3,
        ]
        assert len(office.view.image.topics["a"].partitions) == 5

    in_office(story)


def test_a_check_only_changes_nothing(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        planned = await office.controller.create_topic(NewTopic("a", 3), validate_only=True)
        assert len(planned.partitions) == 3
        assert not office.view.image.topics
        await office.controller.create_topic(NewTopic("a"))
        await office.controller.add_partitions("a", 9, validate_only=True)
        assert len(office.view.image.topics["a"].partitions) == 1

    in_office(story)


def test_a_deleted_topic_leaves_no_node_and_a_new_one_has_a_new_id(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        first = await office.controller.create_topic(NewTopic("a", 2))
        await office.controller.delete_topic("a")
        assert await office.store.children(znodes.TOPICS) == []
        assert await office.store.children(znodes.PARTITIONS) == []
        assert (await refused(office.controller.delete_topic("a"))).code is ErrorCode.unknown_topic_or_partition
        assert (await office.controller.create_topic(NewTopic("a"))).id != first.id
        assert first.id not in office.view.image.topics_by_id

    in_office(story)


def test_the_offsets_topic_is_neither_deleted_nor_grown(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        await office.controller.create_topic(NewTopic("__consumer_offsets", 2))
        for asked in (
            office.controller.delete_topic("__consumer_offsets"),
            office.controller.add_partitions("__consumer_offsets", 4),
        ):
            assert (await refused(asked)).code is ErrorCode.invalid_topic_exception

    in_office(story)


@pytest.mark.parametrize(
    ("total", "assignments", "code"),
    [
        (2, None, ErrorCode.invalid_partitions),
        (1, None, ErrorCode.invalid_partitions),
        (20_000, None, ErrorCode.policy_violation),
        (4, [[1]], ErrorCode.invalid_replica_assignment),
        (3, [[9]], ErrorCode.invalid_replica_assignment),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    in_office: InOffice, total: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    async def story(office: Office) -> None:
        await office.controller.create_topic(NewTopic("a", 2))
        assert (await refused(office.controller.add_partitions("a", total, assignments))).code is code

    in_office(story)


def test_a_topic_larger_than_one_write_is_made_grown_and_deleted_whole(in_office: InOffice) -> None:
    async def create(office: Office) -> None:
        made = await office.controller.create_topic(NewTopic("big", 9_000))
        assert len(made.partitions) == 9_000
        small = office.controller.create_topic(NewTopic("small"))
        grown = await office.controller.add_partitions("big", 18_000)
        assert len(grown.partitions) == 18_000
        await small

    async def delete(office: Office) -> None:
        assert len(office.view.image.topics["big"].partitions) == 18_000
        await office.controller.delete_topic("big")
        await office.controller.create_topic(NewTopic("after"))  # behind the sweep of the states
        assert len(await office.store.children(znodes.PARTITIONS)) == 2

    in_office(create, delete)


def test_what_a_crash_between_two_writes_left_is_swept_at_the_next_start(in_office: InOffice) -> None:
    async def crash(office: Office) -> None:
        topic = await office.controller.create_topic(NewTopic("a"))
        await office.store.create("/partitions/0123456789abcdef0123456789abcdef")
        await office.store.create("/partitions/0123456789abcdef0123456789abcdef/0")
        await office.store.create(znodes.partition_path(topic.id, 1))

    async def after(office: Office) -> None:
        topic = office.view.image.topics["a"]
        assert await office.store.children(znodes.PARTITIONS) == [topic.id.hex]
        assert await office.store.children(znodes.partitions_path(topic.id)) == ["0"]

    in_office(crash, after)


def test_a_full_disk_refuses_one_change_and_what_built_on_it_and_no_other(
    in_office: InOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(office: Office) -> None:
        real = office.store.multi
        full = [True]

        async def multi(operations):  # type: ignore[no-untyped-def]
            if full and any(operation.path == "/topics/a" for operation in operations):
                full.clear()
                raise StoreFull("/topics/a", "no room")
            return await real(operations)

        monkeypatch.setattr(office.store, "multi", multi)
        ask = office.controller
        first, grown, other = (
            ask.create_topic(NewTopic("a")),
            ask.add_partitions("a", 4),
            ask.create_topic(NewTopic("b")),
        )
        assert (await refused(first)).code is ErrorCode.kafka_storage_error
        await refused(grown)
        await other
        assert set(office.view.image.topics) == {"b"}
        await ask.create_topic(NewTopic("a"))
        assert set(office.view.image.topics) == {"a", "b"}

    in_office(story)


def test_a_controller_that_was_replaced_changes_nothing_and_stands_again(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        await office.store.set(znodes.CONTROLLER_EPOCH, znodes.encode_controller(2))
        assert (await refused(office.controller.create_topic(NewTopic("a")))).code is ErrorCode.not_controller
        assert await office.store.children(znodes.TOPICS) == []
        assert (await refused(office.controller.create_topic(NewTopic("b")))).code is ErrorCode.not_controller
        while not office.controller.in_office:
            await asyncio.sleep(0)
        await office.controller.create_topic(NewTopic("c"))
        assert await office.store.children(znodes.TOPICS) == ["c"]

    in_office(story)


def test_a_lost_store_answers_everybody(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        await office.store.close()
        asked = [office.controller.create_topic(NewTopic(name)) for name in "abc"]
        for answer in asked:
            assert (await refused(answer)).code is ErrorCode.not_controller
        await asyncio.wait([office.running])

    with pytest.raises(SessionLost):
        in_office(story)


def test_producer_ids_are_never_given_twice(in_office: InOffice) -> None:
    given: set[int] = set()

    async def story(office: Office) -> None:
        blocks = await asyncio.gather(*(office.controller.allocate_producer_ids(10) for _ in range(20)))
        ids = [number for block in blocks for number in block]
        assert len(set(ids)) == 200
        assert not given & set(ids)
        given.update(ids)

    in_office(story, story)


def test_the_leader_that_leads_already_is_not_elected_again(in_office: InOffice) -> None:
    async def story(office: Office) -> None:
        await office.controller.create_topic(NewTopic("a"))
        ask: Controller = office.controller
        for unclean in (False, True):
            assert (await refused(ask.elect_leader("a", 0, unclean=unclean))).code is ErrorCode.election_not_needed
        assert (await refused(ask.elect_leader("a", 1))).code is ErrorCode.unknown_topic_or_partition
        assert (await refused(ask.elect_leader("b", 0))).code is ErrorCode.unknown_topic_or_partition

    in_office(story)
