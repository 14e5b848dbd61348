"""Settings described and changed over the wire, in every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.api.alter_configs import AlterConfigs
from headrace.api.describe_configs import DescribeConfigs
from headrace.api.incremental_alter_configs import IncrementalAlterConfigs
from headrace.api.list_config_resources import ListConfigResources
from headrace.cluster.topic_changes import NewTopic
from headrace.cluster.view import read_image
from headrace.model import broker_config, topic_config
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.api.admin_room import BROKER_ID, AdminRoom, address_of, ask, tell

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(room: AdminRoom, kind: int, name: str, keys: list[str] | None = None, version: int = 4) -> Message:
    settings = {"log.retention.hours": "2", "num.partitions": "3", "group.consumer.heartbeat.interval.ms": "4000"}
    handler = DescribeConfigs(room.view, BROKER_ID, settings, address_of, Path("/data"))
    resource = Message(resource_type=kind, resource_name=name, configuration_keys=keys)
    body: dict[str, Any] = {"include_synonyms": True, "include_documentation": True}
    answer = await ask(handler, DESCRIBE, version, resources=[resource], **body)
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def change(room: AdminRoom, kind: int, name: str, *changes: tuple[int, str, str | None], **body: Any) -> Message:
    configs = [Message(config_operation=op, name=key, value=value) for op, key, value in changes]
    resource = Message(resource_type=kind, resource_name=name, configs=configs)
    answer = await ask(IncrementalAlterConfigs(room.controller), INCREMENTAL, 1, resources=[resource], **body)
    (result,) = answer.responses
    return result


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_settings_say_where_they_come_from(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a", settings={"segment.bytes": "777"}))
        result = await describe(room, TOPIC, "a", version=version)
        found = {config.name: config for config in result.configs}
        assert set(found) == set(topic_config.BY_NAME)
        assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == ("777", 1)
        assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("7200000", 4)
        assert (found["min.insync.replicas"].value, found["min.insync.replicas"].config_source) == ("1", 3)
        assert [(s.name, s.value, s.source) for s in found["segment.bytes"].synonyms] == [
            ("segment.bytes", "777", 1),
            ("log.segment.bytes", "1073741824", 5),
        ]
        if version >= 3:
            assert found["segment.bytes"].config_type == 3
            assert found["segment.bytes"].documentation

    tell(tmp_path, story)


def test_only_the_keys_asked_for_are_told(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a"))
        result = await describe(room, TOPIC, "a", ["retention.ms", "nonsense"])
        assert [config.name for config in result.configs] == ["retention.ms"]

    tell(tmp_path, story)


def test_a_broker_tells_its_own_settings(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        found = {config.name: config for config in (await describe(room, BROKER, "1")).configs}
        assert set(found) == set(broker_config.BY_NAME) | set(broker_config.TOLD)
        assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("3", 4)
        assert found["num.partitions"].read_only
        assert not found["log.segment.bytes"].read_only
        assert found["broker.rack"].value is None
        assert [config.name for config in (await describe(room, BROKER, "")).configs] == ["min.insync.replicas"]

    tell(tmp_path, story)


def test_a_broker_tells_what_its_command_line_says(tmp_path: Path) -> None:
    """kafka-python's own tests look for the first of these."""

    async def story(room: AdminRoom) -> None:
        names = ["advertised.listeners", "listeners", "log.dirs", "node.id"]
        told = {config.name: config for config in (await describe(room, BROKER, "1", names)).configs}
        assert told["advertised.listeners"].value == told["listeners"].value == "PLAINTEXT://127.0.0.1:9092"
        assert (told["log.dirs"].value, told["node.id"].value) == ("/data", "1")
        assert all(config.read_only and config.config_source == 4 for config in told.values())
        assert told["advertised.listeners"].config_type == told["log.dirs"].config_type == 7
        assert told["advertised.listeners"].documentation

    tell(tmp_path, story)


def test_what_the_command_line_says_cannot_be_changed_from_afar(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        for name in broker_config.TOLD:
            refused = await change(room, BROKER, "1", (SET, name, "7"))
            assert refused.error_code == ErrorCode.invalid_request
            assert name in refused.error_message

    tell(tmp_path, story)


def test_tools_find_numbers_where_a_broker_settles_them_itself(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        found = {config.name: config.value for config in (await describe(room, BROKER, "1")).configs}
        assert (found["default.replication.factor"], found["delete.topic.enable"]) == ("1", "true")
        times = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
        assert [found[name] for name in times] == ["7200000", "120", "2"]  # the file says 2 hours
        assert [found[name] for name in ("log.roll.ms", "log.roll.hours")] == ["604800000", "168"]
        assert (await change(room, BROKER, "", (SET, "log.retention.ms", "-1"))).error_code == 0
        found = {config.name: config.value for config in (await describe(room, BROKER, "1")).configs}
        assert [found[name] for name in times] == ["-1", "-1", "2"]

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "no good", ErrorCode.invalid_topic_exception),
        (BROKER, "7", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (LOGGER, "1", ErrorCode.invalid_request),
        (METRICS, "", ErrorCode.invalid_request),
        (METRICS, "m", ErrorCode.none),
        (99, "m", ErrorCode.invalid_request),
        (GROUP, "", ErrorCode.invalid_request),
    ],
)
def test_what_has_no_settings_is_refused_by_name(tmp_path: Path, kind: int, name: str, code: ErrorCode) -> None:
    async def story(room: AdminRoom) -> None:
        result = await describe(room, kind, name)
        assert result.error_code == code
        assert (result.error_message is None) == (code is ErrorCode.none)
        assert result.configs == []

    tell(tmp_path, story)


def test_single_settings_are_set_unset_and_edited(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a", settings={"segment.ms": "5"}))

        def settings() -> dict[str, str]:
            return dict(room.view.image.topics["a"].settings)

        assert (await change(room, TOPIC, "a", (SET, "retention.ms", "9"))).error_code == 0
        assert settings() == {"segment.ms": "5", "retention.ms": "9"}
        assert (await change(room, TOPIC, "a", (DELETE, "segment.ms", None))).error_code == 0
        assert (await change(room, TOPIC, "a", (APPEND, "cleanup.policy", "compact"))).error_code == 0
        assert settings() == {"retention.ms": "9", "cleanup.policy": "delete,compact"}
        assert (await change(room, TOPIC, "a", (SUBTRACT, "cleanup.policy", "delete"))).error_code == 0
        assert settings()["cleanup.policy"] == "compact"
        assert (await change(room, TOPIC, "a", (SUBTRACT, "cleanup.policy", "compact"))).error_code == 0
        assert settings()["cleanup.policy"] == ""
        assert (await change(room, TOPIC, "a", (SET, "retention.ms", "1"), validate_only=True)).error_code == 0
        assert settings()["retention.ms"] == "9"
        assert (await change(room, TOPIC, "a", (SET, "retention.ms", " 8 "))).error_code == 0
        assert settings()["retention.ms"] == "8"
        assert (await change(room, TOPIC, "a", (DELETE, "message.format.version", None))).error_code == 0

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "a", [(SET, "retention.mss", "1")], ErrorCode.invalid_config),
        (TOPIC, "a", [(SET, "retention.ms", "-7")], ErrorCode.invalid_config),
        (TOPIC, "a", [(SET, "retention.ms", None)], ErrorCode.invalid_request),
        (TOPIC, "a", [(APPEND, "retention.ms", "1")], ErrorCode.invalid_config),
        (TOPIC, "a", [(APPEND, "cleanup.policy", "archive")], ErrorCode.invalid_config),
        (TOPIC, "a", [(SET, "retention.ms", "1"), (DELETE, "retention.ms", None)], ErrorCode.invalid_request),
        (TOPIC, "a", [(7, "retention.ms", "1")], ErrorCode.invalid_request),
        (TOPIC, "a", [(SET, "remote.storage.enable", "true")], ErrorCode.invalid_config),
        (
            TOPIC,
            "a",
            [(SET, "min.compaction.lag.ms", "9"), (SET, "max.compaction.lag.ms", "8")],
            ErrorCode.invalid_config,
        ),
        (TOPIC, "nobody", [(SET, "retention.ms", "1")], ErrorCode.unknown_topic_or_partition),
        (TOPIC, "no good", [(SET, "retention.ms", "1")], ErrorCode.invalid_topic_exception),
        (TOPIC, "", [(SET, "retention.ms", "1")], ErrorCode.invalid_request),
        (BROKER, "1", [(SET, "num.partitions", "2")], ErrorCode.invalid_request),
        (BROKER, "1", [(SET, "ssl.keystore.location", "x")], ErrorCode.invalid_config),
        (BROKER, "9", [(SET, "log.segment.bytes", "99")], ErrorCode.invalid_request),
        (GROUP, "g", [(SET, "share.record.lock.duration.ms", "1")], ErrorCode.invalid_config),
        (GROUP, "g", [(SET, "consumer.session.timeout.ms", "0")], ErrorCode.invalid_config),
        (GROUP, "g", [(SET, "consumer.session.timeout.ms", "5000")], ErrorCode.invalid_config),
        (GROUP, "g", [(SET, "consumer.heartbeat.interval.ms", "45000")], ErrorCode.invalid_config),
        (GROUP, "", [(SET, "consumer.session.timeout.ms", "50000")], ErrorCode.invalid_request),
        (LOGGER, "1", [(SET, "root", "DEBUG")], ErrorCode.invalid_request),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    tmp_path: Path, kind: int, name: str, changes: list[tuple[int, str, str | None]], code: ErrorCode
) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a"))
        result = await change(room, kind, name, *changes)
        assert (ErrorCode(result.error_code), bool(result.error_message)) == (code, True)
        assert room.view.image.topics["a"].settings == {}
        assert room.view.image.group_settings == {}

    tell(tmp_path, story)


def test_a_group_has_settings_of_its_own_before_it_has_members(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        async def told() -> dict[str, tuple[str, int]]:
            result = await describe(room, GROUP, "g")
            assert result.error_code == 0
            named = [config for config in result.configs if config.name.startswith("consumer.")]
            return {config.name: (config.value, config.config_source) for config in named}

        before = {"consumer.heartbeat.interval.ms": ("4000", 5), "consumer.session.timeout.ms": ("45000", 5)}
        assert await told() == before
        assert (await change(room, GROUP, "g", (SET, "consumer.session.timeout.ms", "50000"))).error_code == 0
        assert await told() == before | {"consumer.session.timeout.ms": ("50000", 8)}
        listed = await ask(ListConfigResources(room.view), LIST, 1, resource_types=[GROUP])
        assert [(r.resource_type, r.resource_name) for r in listed.config_resources] == [(GROUP, "g")]
        assert (await change(room, GROUP, "h", (SET, "consumer.heartbeat.interval.ms", "7000"))).error_code == 0
        assert (await read_image(room.store)).group_settings == room.view.image.group_settings
        assert set(room.view.image.group_settings) == {"g", "h"}
        assert (await change(room, GROUP, "g", (DELETE, "consumer.session.timeout.ms", None))).error_code == 0
        assert await told() == before
        assert set(room.view.image.group_settings) == {"h"}

    tell(tmp_path, story)


def test_what_means_nothing_here_is_taken_where_kafka_takes_it_and_told_again(tmp_path: Path) -> None:
    """librdkafka's own tests of its admin client set these."""

    async def story(room: AdminRoom) -> None:
        names = ["background.threads", "sasl.kerberos.min.time.before.relogin"]
        set_both = [(SET, names[0], "9"), (SET, names[1], "58000"), (APPEND, "log.cleanup.policy", "compact")]
        assert (await change(room, BROKER, "1", *set_both)).error_code == 0
        told = (await describe(room, BROKER, "1", [*names, "log.cleanup.policy"])).configs
        assert [(config.value, config.config_source) for config in told] == [
            ("9", 2),
            ("delete,compact", 2),
            ("58000", 2),
        ]
        unset = [(DELETE, names[0], ""), (DELETE, names[1], None), (SUBTRACT, "log.cleanup.policy", "compact")]
        assert (await change(room, BROKER, "1", *unset)).error_code == 0
        (config,) = (await describe(room, BROKER, "1", names[:1])).configs
        assert (config.value, config.config_source, config.read_only) == ("10", 5, False)

    tell(tmp_path, story)


def test_broker_settings_reach_topics_that_set_none(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a"))
        assert (await change(room, BROKER, "", (SET, "log.segment.bytes", "1000"))).error_code == 0
        assert (await change(room, BROKER, "1", (SET, "log.segment.bytes", "2000"))).error_code == 0
        (config,) = (await describe(room, TOPIC, "a", ["segment.bytes"])).configs
        assert config.value == "2000"
        assert [(s.value, s.source) for s in config.synonyms] == [("2000", 2), ("1000", 3), ("1073741824", 5)]
        assert (await change(room, BROKER, "1", (DELETE, "log.segment.bytes", None))).error_code == 0
        (config,) = (await describe(room, TOPIC, "a", ["segment.bytes"])).configs
        assert (config.value, config.config_source) == ("1000", 3)
        names = [entry.name for entry in (await describe(room, BROKER, "")).configs]
        assert names == ["log.segment.bytes", "min.insync.replicas"]

    tell(tmp_path, story)


@pytest.mark.parametrize("version", range(3))
def test_the_old_way_replaces_everything(tmp_path: Path, version: int) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a", settings={"segment.ms": "5"}))
        resource = Message(resource_type=TOPIC, resource_name="a", configs=[Message(name="retention.ms", value="3")])
        answer = await ask(AlterConfigs(room.controller), ALTER, version, resources=[resource])
        assert answer.responses[0].error_code == 0
        assert room.view.image.topics["a"].settings == {"retention.ms": "3"}
        twice = await ask(AlterConfigs(room.controller), ALTER, version, resources=[resource, resource])
        assert [response.error_code for response in twice.responses] == [ErrorCode.invalid_request] * 2

    tell(tmp_path, story)


def test_resources_are_listed_by_type(tmp_path: Path) -> None:
    async def story(room: AdminRoom) -> None:
        await room.controller.create_topic(NewTopic("a"))
        handler = ListConfigResources(room.view)
        answer = await ask(handler, LIST, 1, resource_types=[])
        assert {(r.resource_type, r.resource_name) for r in answer.config_resources} == {(TOPIC, "a"), (BROKER, "1")}
        answer = await ask(handler, LIST, 1, resource_types=[BROKER])
        assert [r.resource_name for r in answer.config_resources] == ["1"]
        assert (await ask(handler, LIST, 1, resource_types=[3])).error_code == ErrorCode.unsupported_version
        assert (await ask(handler, LIST, 0)).config_resources == []

    tell(tmp_path, story)
