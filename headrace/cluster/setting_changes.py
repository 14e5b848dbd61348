"""Changes of settings of topics, brokers and groups: checks the request and plans the change. Pure.

Rejections are KafkaErrors with Kafka's codes. The controller is the only caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from headrace.cluster import znodes
from headrace.cluster.change import Change
from headrace.cluster.store import MAX_BYTES, Create, Operation, Set
from headrace.cluster.topic_changes import check_together, known_topic, write_topic
from headrace.model import broker_config, group_config, topic_config
from headrace.model.image import ClusterImage
from headrace.model.names import topic_name_problem
from headrace.model.settings import Setting, SettingType
from headrace.model.settings_in_force import BrokerFile
from headrace.wire.errors import ErrorCode, KafkaError

Resource = Literal["topic", "broker", "group"]


class SettingOperation(IntEnum):
    """The numbers are those of Kafka's IncrementalAlterConfigs request."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class SettingChange(Struct, frozen=True):
    operation: SettingOperation
    name: str
    value: str | None = None


def alter_settings(
    image: ClusterImage,
    resource: Resource,
    name: str,
    changes: Sequence[SettingChange],
    file: BrokerFile,
    *,
    replace_all: bool,
) -> Change[Mapping[str, str]]:
    """With `replace_all`, settings that are not among the changes are reset to their defaults.

    `file` is that of the controller.
    """
    if len({change.name for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.invalid_request, f"{resource} {name!r}: a setting is changed twice in one request")
    if resource == "topic":
        return _alter_topic(image, name, changes, file, replace_all)
    if resource == "broker":
        return _alter_broker(image, name, changes, replace_all)
    return _alter_group(image, name, changes, file, replace_all)


def _alter_topic(
    image: ClusterImage, name: str, changes: Sequence[SettingChange], file: BrokerFile, replace_all: bool
) -> Change[Mapping[str, str]]:
    if not name:
        raise KafkaError(ErrorCode.invalid_request, "name the topic: what holds for all is set on brokers")
    wrong = topic_name_problem(name)
    if wrong is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, wrong)
    topic = known_topic(image, name)
    before = {} if replace_all else topic.settings
    defaults = topic_config.effective({}, {})
    settings = _altered(before, changes, topic_config.BY_NAME, topic_config.problem, defaults)
    check_together(settings, image, file, topic)
    altered = replace(topic, settings=settings, version=topic.version + 1)

    def delta(image: ClusterImage) -> ClusterImage:
        now = image.topics_by_id.get(topic.id)
        if now is None or now.version >= altered.version:
            return image  # the stored change has already been read
        return image.with_topics([replace(now, settings=settings, version=altered.version)])

    return Change([[write_topic(altered)]], delta, settings)


def _alter_broker(
    image: ClusterImage, name: str, changes: Sequence[SettingChange], replace_all: bool
) -> Change[Mapping[str, str]]:
    if name and name not in map(str, image.brokers):
        raise KafkaError(
            ErrorCode.invalid_request, f"there is no broker {name!r}; leave the name empty to mean all brokers"
        )
    for change in changes:
        if change.name in broker_config.TOLD:
            raise KafkaError(ErrorCode.invalid_request, f"{change.name} is {broker_config.TOLD[change.name].meaning}")
        setting = broker_config.BY_NAME.get(change.name)
        if setting is not None and setting.read_only:
            raise KafkaError(
                ErrorCode.invalid_request, f"{change.name} is read at start only: set it in the file given by --config"
            )
    before = {} if replace_all else image.broker_settings.get(name, {})
    defaults = {setting.name: setting.default for setting in broker_config.SETTINGS}
    settings = _altered(before, changes, broker_config.BY_NAME, broker_config.problem, defaults)
    path, data = znodes.broker_settings_path(name), znodes.encode_settings(settings)
    known_version = image.broker_settings_versions.get(name)
    write: Operation = Create(path, data) if known_version is None else Set(path, data, known_version)
    version = 0 if known_version is None else known_version + 1

    def delta(image: ClusterImage) -> ClusterImage:
        known = image.broker_settings_versions.get(name, -1)
        return image if known >= version else image.with_broker_settings(name, settings, version)

    return Change([[write]], delta, settings)


def _alter_group(
    image: ClusterImage, name: str, changes: Sequence[SettingChange], file: BrokerFile, replace_all: bool
) -> Change[Mapping[str, str]]:
    if not name:
        raise KafkaError(ErrorCode.invalid_request, "name the group: groups have no settings that all of them share")
    before = {} if replace_all else image.group_settings.get(name, {})
    defaults = {setting.name: setting.default for setting in group_config.SETTINGS}
    settings = _altered(before, changes, group_config.BY_NAME, group_config.problem, defaults)
    wrong = group_config.contradiction(settings, file.in_force(image))
    if wrong is not None:
        raise KafkaError(ErrorCode.invalid_config, wrong)
    groups = {group: values for group, values in {**image.group_settings, name: settings}.items() if values}
    data, version = znodes.encode_group_settings(groups), image.group_settings_version + 1
    if len(data) > MAX_BYTES // 2:
        raise KafkaError(ErrorCode.policy_violation, f"{len(groups)} groups with settings of their own are too many")

    def delta(image: ClusterImage) -> ClusterImage:
        if image.group_settings_version >= version:
            return image
        return replace(image, group_settings=groups, group_settings_version=version, version=image.version + 1)

    return Change([[Set(znodes.GROUP_SETTINGS, data, version - 1)]], delta, settings)


def _altered(
    before: Mapping[str, str],
    changes: Sequence[SettingChange],
    table: Mapping[str, Setting],
    problem: Callable[[str, str], str | None],
    defaults: Mapping[str, object],
) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        if change.operation is SettingOperation.DELETE:  # unknown names too
            after.pop(change.name, None)
            continue
        setting = table.get(change.name)
        if setting is None:
            raise KafkaError(ErrorCode.invalid_config, problem(change.name, "") or "")
        if change.value is None:
            raise KafkaError(ErrorCode.invalid_request, f"{change.name} has no value")
        text = change.value.strip()
        if change.operation in (SettingOperation.APPEND, SettingOperation.SUBTRACT):
            text = _edited_list(setting, after.get(change.name), defaults[change.name], change)
        wrong = problem(change.name, text)
        if wrong is not None:
            raise KafkaError(ErrorCode.invalid_config, wrong)
        after[change.name] = text
    return after


def _edited_list(setting: Setting, current: str | None, default: object, change: SettingChange) -> str:
    if setting.type is not SettingType.LIST:
        raise KafkaError(ErrorCode.invalid_config, f"{setting.name} is not a list: it can be set, not added to")
    text = current if current is not None else setting.text(default)
    parts = [part for part in (text or "").split(",") if part]
    named = [part.strip() for part in (change.value or "").split(",") if part.strip()]
    if change.operation is SettingOperation.APPEND:
        parts += [part for part in named if part not in parts]
    else:
        parts = [part for part in parts if part not in named]
    return ",".join(parts)
