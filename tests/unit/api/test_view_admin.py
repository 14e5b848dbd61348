"""Views as topics, over the wire: how they are made, what they may not do, and what their bases may not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.api.create_partitions import CreatePartitions
from headrace.api.create_topics import CreateTopics
from headrace.api.delete_topics import DeleteTopics
from headrace.api.elect_leaders import ElectLeaders
from headrace.api.incremental_alter_configs import IncrementalAlterConfigs
from headrace.cluster.view import read_image
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.api.admin_room import BROKER_ID, AdminRoom, ask, tell

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ELECT_LEADERS, ALTER = 19, 20, 37, 43, 44
OF = {"headrace.view.of": "a", "headrace.view.tags": "x,y"}
PENDING = {"headrace.view.of": "a", "headrace.view.pending": "true"}


async def make(room: AdminRoom, name: str, settings: dict[str, str], partitions: int = -1, **more: object) -> Message:
    handler = CreateTopics(room.controller, room.view, room.clock, BROKER_ID, {})
    configs = [Message(name=key, value=value) for key, value in settings.items()]
    topic = Message(name=name, num_partitions=partitions, replication_factor=-1, configs=configs, **more)
    made: Message = (await ask(handler, CREATE_TOPICS, 7, topics=[topic], timeout_ms=5000)).topics[0]
    return made


async def alter(room: AdminRoom, name: str, setting: str, value: str) -> Message:
    change = Message(name=setting, config_operation=0, value=value)
    resource = Message(resource_type=2, resource_name=name, configs=[change])
    done: Message = (await ask(IncrementalAlterConfigs(room.controller), ALTER, 1, resources=[resource])).responses[0]
    return done


async def delete(room: AdminRoom, name: str) -> Message:
    handler = DeleteTopics(room.controller, room.view, room.clock)
    gone: Message = (await ask(handler, DELETE_TOPICS, 6, topics=[Message(name=name)], timeout_ms=5000)).responses[0]
    return gone


async def grow(room: AdminRoom, name: str, count: int) -> Message:
    handler = CreatePartitions(room.controller, room.clock)
    topics = [Message(name=name, count=count, assignments=None)]
    grown: Message = (await ask(handler, CREATE_PARTITIONS, 3, topics=topics, timeout_ms=5000)).results[0]
    return grown


def test_a_view_has_an_id_and_its_bases_partitions_but_none_of_its_own(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await make(room, "a", {"headrace.tags.enable": "true"}, 3)
        made = await make(room, "a.v", OF)
        assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 3, 1)
        image = room.view.image
        view, base = image.topics["a.v"], image.topics["a"]
        assert (view.partitions, view.base, view.id) == ((), base.id, made.topic_id)
        assert image.partitions_of(view) == base.partitions
        assert (await grow(room, "a", 5)).error_code == 0
        assert len(room.view.image.partitions_of(view)) == 5
        stored = await read_image(room.store)
        assert stored.topics["a.v"] == view
        assert [topic.name for topic in stored.views_of(base)] == ["a.v"]

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("settings", "partitions", "words"),
    [
        ({"headrace.view.tags": "x"}, -1, "does not say of which topic"),
        ({"headrace.view.of": "nobody", "headrace.view.tags": "x"}, -1, "there is no such topic"),
        ({"headrace.view.of": "a.v", "headrace.view.tags": "x"}, -1, "it is a view itself"),
        ({"headrace.view.of": "plain", "headrace.view.tags": "x"}, -1, "set headrace.tags.enable=true"),
        ({"headrace.view.of": "a"}, -1, "at least one tag"),
        ({"headrace.view.of": "a", "headrace.view.tags": " , "}, -1, "at least one tag"),
        (OF | {"headrace.view.match": "some"}, -1, "choose from any, all, none"),
        (OF | {"retention.ms": "5"}, -1, "set retention.ms on its base"),
        (OF | {"headrace.view.pending": "true"}, -1, "without headrace.view.tags"),
        (PENDING | {"headrace.view.match": "none"}, -1, "without headrace.view.match"),
        (PENDING | {"headrace.view.pending": "yes"}, -1, "headrace.view.pending"),
        (PENDING, -1, "set headrace.delay.enable=true on that topic first"),
        ({"headrace.view.pending": "true"}, -1, "does not say of which topic"),
        (OF, 2, "has the 3 partitions of 'a'"),
        ({"headrace.view.of": "a", "headrace.view.tags": ",".join(map(str, range(65)))}, -1, "at most 64"),
    ],
)
def test_what_cannot_become_a_view_is_refused_with_a_reason(
    tmp_path: Path, settings: dict[str, str], partitions: int, words: str
) -> None:
    async def story(room: AdminRoom) -> None:
        await make(room, "a", {"headrace.tags.enable": "true"}, 3)
        await make(room, "a.v", OF)
        await make(room, "plain", {})
        refused = await make(room, "bad", settings, partitions)
        assert refused.error_code in (ErrorCode.invalid_config, ErrorCode.invalid_request)
        assert words in refused.error_message
        assert "bad" not in room.view.image.topics

    tell(tmp_path, story)


def test_a_view_is_not_grown_assigned_or_elected(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await make(room, "a", {"headrace.tags.enable": "true"})
        assert (await make(room, "a.v", OF, 1)).error_code == 0
        assert (await grow(room, "a.v", 4)).error_code == ErrorCode.invalid_request
        assigned = [Message(partition_index=0, broker_ids=[BROKER_ID])]
        assert (await make(room, "a.w", OF, assignments=assigned)).error_code == ErrorCode.invalid_request
        asked = [Message(topic="a.v", partitions=[0])]
        handler = ElectLeaders(room.controller, room.view, room.clock)
        answer = await ask(handler, ELECT_LEADERS, 2, election_type=0, topic_partitions=asked, timeout_ms=5000)
        result = answer.replica_election_results[0].partition_result[0]
        assert result.error_code == ErrorCode.invalid_request

    tell(tmp_path, story)


def test_a_base_keeps_its_tags_and_itself_while_it_has_views(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await make(room, "a", {"headrace.tags.enable": "true"})
        await make(room, "a.v", OF)
        refused = await delete(room, "a")
        assert refused.error_code == ErrorCode.invalid_request
        assert "a.v" in refused.error_message
        refused = await alter(room, "a", "headrace.tags.enable", "false")
        assert refused.error_code == ErrorCode.invalid_config
        assert "a.v" in refused.error_message
        assert (await alter(room, "a", "retention.ms", "5000")).error_code == 0
        assert (await delete(room, "a.v")).error_code == 0
        assert (await alter(room, "a", "headrace.tags.enable", "false")).error_code == 0
        assert (await delete(room, "a")).error_code == 0

    tell(tmp_path, story)


def test_what_makes_a_view_is_fixed_when_it_is_created(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await make(room, "a", {"headrace.tags.enable": "true"})
        await make(room, "a.v", OF)
        for name, setting, value in (
            ("a", "headrace.view.of", "a.v"),
            ("a", "headrace.view.tags", "x"),
            ("a.v", "headrace.view.tags", "x"),
            ("a.v", "headrace.view.match", "all"),
            ("a.v", "retention.ms", "5"),
        ):
            assert (await alter(room, name, setting, value)).error_code == ErrorCode.invalid_config, (name, setting)

    tell(tmp_path, story)


def test_a_base_keeps_its_delays_while_it_has_a_view_of_what_is_pending(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await make(room, "a", {"headrace.delay.enable": "true", "headrace.tags.enable": "true"}, 3)
        assert (await make(room, "a.pending", PENDING)).num_partitions == 3
        assert (await make(room, "a.v", OF)).error_code == 0
        refused = await alter(room, "a", "headrace.delay.enable", "false")
        assert refused.error_code == ErrorCode.invalid_config
        assert "headrace.delay.enable must stay while it has a.pending" in refused.error_message
        assert (await alter(room, "a.pending", "headrace.view.pending", "false")).error_code == ErrorCode.invalid_config
        assert (await delete(room, "a")).error_code == ErrorCode.invalid_request
        assert (await delete(room, "a.pending")).error_code == 0
        assert (await alter(room, "a", "headrace.delay.enable", "false")).error_code == 0
        refused = await alter(room, "a", "headrace.tags.enable", "false")
        assert "headrace.tags.enable must stay while it has a.v" in refused.error_message

    tell(tmp_path, story)
