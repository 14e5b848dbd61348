"""Topics made, grown and deleted over the wire, in every version."""

from __future__ import annotations

import asyncio
import gc
import uuid
import weakref
from pathlib import Path

import pytest

from headrace.api.create_partitions import CreatePartitions
from headrace.api.create_topics import CreateTopics
from headrace.api.delete_topics import DeleteTopics
from headrace.api.elect_leaders import ElectLeaders
from headrace.cluster.topic_changes import NewTopic
from headrace.model.topic_config import SETTINGS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.api.admin_room import BROKER_ID, AdminRoom, ask, tell

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ELECT_LEADERS = 19, 20, 37, 43


def create_topics(room: AdminRoom) -> CreateTopics:
    return CreateTopics(room.controller, room.view, room.clock, BROKER_ID, {"log.segment.bytes": "5000"})


def new(name: str, partitions: int = -1, **settings: str) -> Message:
    configs = [Message(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return Message(name=name, num_partitions=partitions, replication_factor=-1, configs=configs)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_made_and_told_in_every_version(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        answer = await ask(
            create_topics(room),
            CREATE_TOPICS,
            version,
            topics=[new("a", 2, retention_ms="9"), new("b")],
            timeout_ms=5000,
        )
        assert [(t.name, t.error_code, t.error_message) for t in answer.topics] == [("a", 0, None), ("b", 0, None)]
        made = answer.topics[0]
        if version >= 5:
            assert (made.num_partitions, made.replication_factor) == (2, 1)
            told = {config.name: (config.value, config.config_source) for config in made.configs}
            assert len(told) == len(SETTINGS)
            assert told["retention.ms"] == ("9", 1)
            assert told["segment.bytes"] == ("5000", 4)
            assert told["cleanup.policy"] == ("delete", 5)
        if version >= 7:
            assert made.topic_id == room.view.image.topics["a"].id

    tell(tmp_path, story)


def test_a_topic_that_is_refused_does_not_stop_the_others(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        topics = [new("good"), new("bad name"), new("twice"), new("twice"), new("__cluster_metadata")]
        topics.append(new("typo", retention_mss="1"))
        answer = await ask(create_topics(room), CREATE_TOPICS, 7, topics=topics, timeout_ms=5000)
        codes = {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}
        assert codes == {
            "good": ErrorCode.none,
            "bad name": ErrorCode.invalid_topic_exception,
            "twice": ErrorCode.invalid_request,
            "__cluster_metadata": ErrorCode.invalid_request,
            "typo": ErrorCode.invalid_config,
        }
        assert "did you mean retention.ms?" in answer.topics[-1].error_message
        assert set(room.view.image.topics) == {"good"}

    tell(tmp_path, story)


def test_a_topic_can_be_made_with_all_that_another_one_tells(tmp_path: Path) -> None:
    """As tools do that clone a topic."""

    async def story(room: AdminRoom) -> None:
        answer = await ask(create_topics(room), CREATE_TOPICS, 7, topics=[new("a")], timeout_ms=5000)
        clone = new("b")
        clone.configs = [Message(name=config.name, value=config.value) for config in answer.topics[0].configs]
        answer = await ask(create_topics(room), CREATE_TOPICS, 7, topics=[clone], timeout_ms=5000)
        assert (answer.topics[0].error_code, answer.topics[0].error_message) == (0, None)

    tell(tmp_path, story)


def test_settings_that_contradict_each_other_make_no_topic(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        topic = new("a", min_compaction_lag_ms="9", max_compaction_lag_ms="8")
        answer = await ask(create_topics(room), CREATE_TOPICS, 7, topics=[topic], timeout_ms=5000)
        assert answer.topics[0].error_code == ErrorCode.invalid_config
        words = "min.compaction.lag.ms=9 must not be greater than max.compaction.lag.ms=8"
        assert answer.topics[0].error_message == words

    tell(tmp_path, story)


def test_replicas_can_be_assigned_by_hand(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        topic = new("a")
        topic.assignments = [Message(partition_index=n, broker_ids=[1]) for n in range(3)]
        unknown = new("b")
        unknown.assignments = [Message(partition_index=0, broker_ids=[5])]
        answer = await ask(create_topics(room), CREATE_TOPICS, 7, topics=[topic, unknown], timeout_ms=5000)
        assert [t.error_code for t in answer.topics] == [0, ErrorCode.invalid_replica_assignment]
        assert len(room.view.image.topics["a"].partitions) == 3

    tell(tmp_path, story)


def test_a_check_only_makes_nothing(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        answer = await ask(
            create_topics(room), CREATE_TOPICS, 7, topics=[new("a", 3)], timeout_ms=5000, validate_only=True
        )
        assert (answer.topics[0].error_code, answer.topics[0].num_partitions) == (0, 3)
        assert not room.view.image.topics

    tell(tmp_path, story)


def test_when_the_time_is_up_the_client_is_told_and_the_work_goes_on(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        room.controller._changes._queued.set = lambda: None  # type: ignore[method-assign]  # the controller is slow
        asked = asyncio.ensure_future(ask(create_topics(room), CREATE_TOPICS, 7, topics=[new("a")], timeout_ms=10_000))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        room.clock.advance(10)
        assert (await asked).topics[0].error_code == ErrorCode.request_timed_out
        del room.controller._changes._queued.set
        await room.controller.create_topic(NewTopic("b"))
        assert set(room.view.image.topics) == {"a", "b"}

    tell(tmp_path, story)


def test_requests_take_effect_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        make, drop = create_topics(room), DeleteTopics(room.controller, room.view, room.clock)
        answers = await asyncio.gather(
            ask(make, CREATE_TOPICS, 7, topics=[new("a")], timeout_ms=5000),
            ask(drop, DELETE_TOPICS, 5, topic_names=["a"], timeout_ms=5000),
            ask(make, CREATE_TOPICS, 7, topics=[new("a", 4)], timeout_ms=5000),
        )
        assert [
            part.error_code for answer in answers for part in getattr(answer, "topics", None) or answer.responses
        ] == [0] * 3
        assert len(room.view.image.topics["a"].partitions) == 4

    tell(tmp_path, story)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name_in_every_version(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a"))
        names = ["a", "nobody"]
        body = {"topics": [Message(name=name) for name in names]} if version == 6 else {"topic_names": names}
        answer = await ask(
            DeleteTopics(room.controller, room.view, room.clock), DELETE_TOPICS, version, **body, timeout_ms=5000
        )
        assert [(r.name, r.error_code) for r in answer.responses] == [
            ("a", 0),
            ("nobody", ErrorCode.unknown_topic_or_partition),
        ]
        assert not room.view.image.topics

    tell(tmp_path, story)


def test_topics_are_deleted_by_id(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        made = await room.controller.create_topic(NewTopic("a"))
        topics = [Message(name=None, topic_id=made.id), Message(name=None, topic_id=uuid.UUID(int=5))]
        topics.append(Message(name="both", topic_id=made.id))
        answer = await ask(
            DeleteTopics(room.controller, room.view, room.clock), DELETE_TOPICS, 6, topics=topics, timeout_ms=5000
        )
        assert [(r.name, r.error_code) for r in answer.responses] == [
            ("a", 0),
            (None, ErrorCode.unknown_topic_id),
            ("both", ErrorCode.invalid_request),
        ]

    tell(tmp_path, story)


def test_a_topic_that_stands_twice_in_a_request_is_not_deleted(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        a, b = [await room.controller.create_topic(NewTopic(name)) for name in "ab"]
        names = ["a", "a", "nobody"]
        drop = DeleteTopics(room.controller, room.view, room.clock)
        answer = await ask(drop, DELETE_TOPICS, 5, topic_names=names, timeout_ms=5000)
        assert [(r.name, r.error_code) for r in answer.responses] == [
            ("a", ErrorCode.invalid_request),
            ("nobody", ErrorCode.unknown_topic_or_partition),
        ]
        topics = [Message(name="a"), Message(name=None, topic_id=a.id)]  # the same by its name and by its id
        topics += [Message(name=None, topic_id=b.id)] * 2 + [Message(name=None)]
        answer = await ask(drop, DELETE_TOPICS, 6, topics=topics, timeout_ms=5000)
        assert [r.error_code for r in answer.responses] == [ErrorCode.invalid_request] * 4
        assert set(room.view.image.topics) == {"a", "b"}

    tell(tmp_path, story)


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.invalid_request), (5, ErrorCode.topic_deletion_disabled)])
def test_no_topic_goes_where_deleting_is_off(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a"))
        drop = DeleteTopics(room.controller, room.view, room.clock, enabled=False)
        answer = await ask(drop, DELETE_TOPICS, version, topic_names=["a"], timeout_ms=5000)
        assert [(r.name, r.error_code) for r in answer.responses] == [("a", code)]
        assert set(room.view.image.topics) == {"a"}

    tell(tmp_path, story)


@pytest.mark.parametrize("version", range(4))
def test_topics_grow_in_every_version(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        for name in "abc":
            await room.controller.create_topic(NewTopic(name))
        topics = [
            Message(name="a", count=3, assignments=None),
            Message(name="b", count=2, assignments=[Message(broker_ids=[1])]),
            Message(name="c", count=1, assignments=None),
            Message(name="d", count=1, assignments=None),
        ]
        answer = await ask(
            CreatePartitions(room.controller, room.clock), CREATE_PARTITIONS, version, topics=topics, timeout_ms=5000
        )
        assert [(r.name, r.error_code) for r in answer.results] == [
            ("a", 0),
            ("b", 0),
            ("c", ErrorCode.invalid_partitions),
            ("d", ErrorCode.unknown_topic_or_partition),
        ]
        assert {name: len(topic.partitions) for name, topic in room.view.image.topics.items()} == {
            "a": 3,
            "b": 2,
            "c": 1,
        }

    tell(tmp_path, story)


@pytest.mark.parametrize("version", range(3))
def test_a_single_broker_needs_no_election(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a", 2))
        handler = ElectLeaders(room.controller, room.view, room.clock)
        asked = [Message(topic="a", partitions=[0, 9])]
        answer = await ask(handler, ELECT_LEADERS, version, topic_partitions=asked, timeout_ms=5000)
        (result,) = answer.replica_election_results
        assert [(p.partition_id, p.error_code) for p in result.partition_result] == [
            (0, ErrorCode.election_not_needed),
            (9, ErrorCode.unknown_topic_or_partition),
        ]
        answer = await ask(handler, ELECT_LEADERS, version, topic_partitions=None, timeout_ms=5000)
        assert answer.replica_election_results == []

    tell(tmp_path, story)


def test_a_refusal_keeps_no_frames_and_nobody_has_to_hear_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A request may get hundreds of thousands of them, and its client may be gone."""

    async def story(room: AdminRoom) -> None:
        gc.disable()
        try:
            refused = room.controller.elect_leader("nowhere", 0)
            error = weakref.ref(refused.exception())  # type: ignore[arg-type]
            del refused
            assert error() is None, "no frame keeps the answer, which keeps the error"
            room.controller.elect_leader("nowhere", 1)
        finally:
            gc.enable()

    tell(tmp_path, story)
    assert caplog.records == []
