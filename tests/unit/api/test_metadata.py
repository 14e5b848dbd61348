"""What clients learn from Metadata, DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.api.describe_cluster import DescribeCluster
from headrace.api.describe_topic_partitions import DescribeTopicPartitions
from headrace.api.known_brokers import KnownBrokers
from headrace.api.metadata import Metadata
from headrace.cluster.topic_changes import NewTopic
from headrace.model.image import TopicImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from tests.unit.api.admin_room import BROKER_ID, AdminRoom, address_of, ask, tell

METADATA, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 3, 60, 75
# Kafka's numbers: read, write, create, delete, alter, describe, cluster action, describe and alter configs, idempotence
OF_A_TOPIC = {3, 4, 5, 6, 7, 8, 10, 11}
OF_THE_CLUSTER = {5, 7, 8, 9, 10, 11, 12}


def operations(bits: int) -> set[int]:
    return {number for number in range(31) if bits & 1 << number}


def brokers(room: AdminRoom) -> KnownBrokers:
    return KnownBrokers(room.view, address_of, BROKER_ID)


def metadata(room: AdminRoom, auto_create: bool = True) -> Metadata:
    return Metadata(room.view, room.controller, brokers(room), auto_create)


@pytest.mark.parametrize("version", range(14))
def test_every_version_tells_brokers_topics_and_leaders(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        made = await room.controller.create_topic(NewTopic("orders", 3))
        await room.controller.create_topic(NewTopic("__consumer_offsets"))
        answer = await ask(metadata(room), METADATA, version, topics=[] if version == 0 else None)
        assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", 9092)]
        assert [(t.name, len(t.partitions)) for t in answer.topics] == [("orders", 3), ("__consumer_offsets", 1)]
        first = answer.topics[0].partitions[0]
        assert (first.leader_id, first.replica_nodes, first.isr_nodes, first.error_code) == (1, [1], [1], 0)
        if version >= 1:
            assert answer.controller_id == 1
            assert [t.is_internal for t in answer.topics] == [False, True]
            assert answer.brokers[0].rack == "rack-a"
        if version >= 2:
            assert answer.cluster_id == room.view.image.cluster_id
        if version >= 7:
            assert first.leader_epoch == 0
        if version >= 8:
            assert answer.topics[0].topic_authorized_operations == -(2**31)
        if version >= 10:
            assert answer.topics[0].topic_id == made.id

    tell(tmp_path, story)


@pytest.mark.parametrize("version", range(8, 14))
def test_a_client_that_asks_what_it_may_do_hears_everything(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("orders"))
        asked: dict[str, bool] = {"include_topic_authorized_operations": True}
        if version <= 10:
            asked["include_cluster_authorized_operations"] = True
        answer = await ask(metadata(room), METADATA, version, topics=None, **asked)
        assert operations(answer.topics[0].topic_authorized_operations) == OF_A_TOPIC
        if version <= 10:
            assert operations(answer.cluster_authorized_operations) == OF_THE_CLUSTER

        cluster = DescribeCluster(room.view, brokers(room))
        told = await ask(cluster, DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True, endpoint_type=1)
        assert operations(told.cluster_authorized_operations) == OF_THE_CLUSTER
        silent = await ask(cluster, DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False, endpoint_type=1)
        assert silent.cluster_authorized_operations == -(2**31)

        describe = DescribeTopicPartitions(room.view)
        page = await ask(
            describe,
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[Message(name="orders")],
            response_partition_limit=9,
            cursor=None,
        )
        assert operations(page.topics[0].topic_authorized_operations) == OF_A_TOPIC

    tell(tmp_path, story)


def test_an_empty_list_asks_for_brokers_only(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("orders"))
        answer = await ask(metadata(room), METADATA, 9, topics=[])
        assert answer.topics == []
        assert len(answer.brokers) == 1

    tell(tmp_path, story)


@pytest.mark.parametrize("beside", [None, ""])
def test_topics_are_found_by_id_and_an_unknown_id_is_told(tmp_path: Path, beside: str | None) -> None:
    async def story(room: AdminRoom) -> None:
        made = await room.controller.create_topic(NewTopic("orders"))
        other = uuid.UUID(int=77)
        answer = await ask(
            metadata(room),
            METADATA,
            12,
            topics=[Message(topic_id=made.id, name=beside), Message(topic_id=other, name=beside)],
        )
        found, unknown = answer.topics
        assert (found.name, found.topic_id, found.error_code) == ("orders", made.id, 0)
        assert (unknown.name, unknown.topic_id) == (None, other)
        assert unknown.error_code == ErrorCode.unknown_topic_id

    tell(tmp_path, story)


@pytest.mark.parametrize(("version", "name"), [(10, ""), (11, ""), (12, None), (13, None)])
def test_a_topic_without_a_name_is_told_as_the_version_can(tmp_path: Path, version: int, name: str | None) -> None:
    async def story(room: AdminRoom) -> None:
        asked = [Message(name=None, topic_id=None), Message(name=None, topic_id=uuid.UUID(int=5))]
        told = await ask(metadata(room), METADATA, version, topics=asked, allow_auto_topic_creation=False)
        assert [(topic.name, topic.error_code) for topic in told.topics] == [
            (name, ErrorCode.invalid_request),
            (name, ErrorCode.unknown_topic_id),
        ]

    tell(tmp_path, story)


def test_a_missing_topic_is_made_when_setting_and_request_allow_it(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        asked = {"topics": [Message(name="new")]}
        cases = [(False, True), (True, False)]
        for setting, allowed in cases:
            answer = await ask(metadata(room, setting), METADATA, 9, **asked, allow_auto_topic_creation=allowed)
            assert answer.topics[0].error_code == ErrorCode.unknown_topic_or_partition
        answer = await ask(metadata(room), METADATA, 9, **asked, allow_auto_topic_creation=True)
        assert (answer.topics[0].error_code, answer.topics[0].partitions[0].leader_id) == (0, 1)

    tell(tmp_path, story)


def test_versions_that_cannot_say_so_allow_topics_to_be_made(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        answer = await ask(metadata(room), METADATA, 1, topics=[Message(name="new")])
        assert answer.topics[0].error_code == 0

    tell(tmp_path, story)


def test_two_clients_that_ask_for_one_missing_topic_both_get_it(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        handler = metadata(room)
        answers = await asyncio.gather(*(ask(handler, METADATA, 9, topics=[Message(name="new")]) for _ in range(5)))
        assert {answer.topics[0].error_code for answer in answers} == {0}

    tell(tmp_path, story)


@pytest.mark.parametrize("why", ["not_controller", "request_timed_out", "unknown_server_error"])
def test_a_client_asks_again_for_a_topic_that_could_not_be_made_just_now(tmp_path: Path, why: str) -> None:
    class NobodyThere:
        def create_topic(self, new: NewTopic) -> asyncio.Future[TopicImage]:
            refused: asyncio.Future[TopicImage] = asyncio.get_running_loop().create_future()
            refused.set_exception(KafkaError(ErrorCode[why]))
            return refused

    async def story(room: AdminRoom) -> None:
        handler = Metadata(room.view, NobodyThere(), brokers(room), True)
        answer = await ask(handler, METADATA, 9, topics=[Message(name="new")])
        assert answer.topics[0].error_code == ErrorCode.leader_not_available

    tell(tmp_path, story)


def test_names_that_no_topic_can_have_and_internal_ones_are_not_made(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a.b"))
        names = ["no spaces", "a_b", "__consumer_offsets", "__cluster_metadata"]
        answer = await ask(metadata(room), METADATA, 9, topics=[Message(name=name) for name in names])
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.invalid_topic_exception,
            ErrorCode.invalid_topic_exception,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert set(room.view.image.topics) == {"a.b"}

    tell(tmp_path, story)


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        handler = DescribeCluster(room.view, brokers(room))
        answer = await ask(handler, DESCRIBE_CLUSTER, version)
        assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [(1, "127.0.0.1", 9092, "rack-a")]
        assert (answer.cluster_id, answer.controller_id) == (room.view.image.cluster_id, 1)
        if version >= 1:
            refused = await ask(handler, DESCRIBE_CLUSTER, version, endpoint_type=2)
            assert (refused.error_code, refused.endpoint_type) == (ErrorCode.mismatched_endpoint_type, 1)

    tell(tmp_path, story)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
def test_pages_of_partitions_cover_everything_once(tmp_path: Path, limit: int) -> None:
    async def story(room: AdminRoom) -> None:
        for name, count in (("b", 3), ("a", 4), ("c", 1)):
            await room.controller.create_topic(NewTopic(name, count))
        handler = DescribeTopicPartitions(room.view)
        seen: list[tuple[str, int]] = []
        cursor = None
        for _ in range(20):
            page = await ask(
                handler, DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=limit, cursor=cursor
            )
            got = [(topic.name, partition.partition_index) for topic in page.topics for partition in topic.partitions]
            assert 1 <= len(got) <= limit
            seen += got
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]

    tell(tmp_path, story)


def test_a_cursor_must_be_in_the_topics_that_are_asked_for(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        for name in ("a", "b", "c"):
            await room.controller.create_topic(NewTopic(name))
        for topic, code in (("a", ErrorCode.invalid_request), ("b", 0), ("d", ErrorCode.invalid_request)):
            page = await ask(
                DescribeTopicPartitions(room.view),
                DESCRIBE_TOPIC_PARTITIONS,
                0,
                topics=[Message(name="b"), Message(name="c")],
                response_partition_limit=10,
                cursor=Message(topic_name=topic, partition_index=0),
            )
            assert [(told.name, told.error_code) for told in page.topics] == [("b", code), ("c", code)]

    tell(tmp_path, story)


def test_topics_that_are_not_there_are_named(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a"))
        names = [Message(name=name) for name in ("b", "a", "not ok")]
        page = await ask(DescribeTopicPartitions(room.view), DESCRIBE_TOPIC_PARTITIONS, 0, topics=names)
        assert [(topic.name, topic.error_code) for topic in page.topics] == [
            ("a", 0),
            ("b", ErrorCode.unknown_topic_or_partition),
            ("not ok", ErrorCode.invalid_topic_exception),
        ]

    tell(tmp_path, story)


def test_clients_are_told_of_a_live_broker_while_there_is_no_controller(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        for gone in (-1, 9):
            room.view.publish(replace(room.view.image, controller_id=gone))
            answer = await ask(metadata(room), METADATA, 12, topics=[], allow_auto_topic_creation=False)
            assert answer.controller_id == BROKER_ID

    tell(tmp_path, story)


def test_a_broker_that_sees_none_registered_tells_of_itself(tmp_path: Path) -> None:
    """A librdkafka that is told of topics and no brokers gives up all of its connections, and may never ask again."""

    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a"))
        room.view.publish(replace(room.view.image, brokers={}, controller_id=-1))
        answer = await ask(metadata(room), METADATA, 12, topics=[Message(name="a")])
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
            (BROKER_ID, "127.0.0.1", 9092)
        ]
        assert answer.controller_id == BROKER_ID
        described = await ask(DescribeCluster(room.view, brokers(room)), DESCRIBE_CLUSTER, 1, endpoint_type=1)
        assert ([broker.broker_id for broker in described.brokers], described.controller_id) == ([BROKER_ID], BROKER_ID)

    tell(tmp_path, story)


@pytest.mark.parametrize("version", [1, 12])
def test_a_leader_that_has_gone_is_none(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a"))
        room.view.publish(replace(room.view.image, brokers={}))
        answer = await ask(metadata(room), METADATA, version, topics=[Message(name="a")])
        (part,) = answer.topics[0].partitions
        assert (part.error_code, part.leader_id) == (ErrorCode.leader_not_available, -1)
        assert (part.replica_nodes, part.isr_nodes) == ([BROKER_ID], [BROKER_ID])

    tell(tmp_path, story)
