"""Every setting that a single consumer group can have, with its type, default and meaning.

They apply to groups of the new protocol, whose members get their session timeout from the broker. A group's value takes
precedence over the broker's (`broker_name`), and that over the default here. A group need not exist to have settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.model.settings import ABSENT, Setting, SettingType, problem_with
from headrace.model.topic_config import value_in_force

HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT = "consumer.session.timeout.ms"

SETTINGS: tuple[Setting, ...] = (
    Setting(HEARTBEAT_INTERVAL, SettingType.INT, 5_000, "the heartbeat interval of the group's members", low=1,
            broker_name="group.consumer.heartbeat.interval.ms"),
    Setting(SESSION_TIMEOUT, SettingType.INT, 45_000,
            "the session timeout of the group's members; longer than the heartbeat interval", low=1,
            broker_name="group.consumer.session.timeout.ms"),
)  # fmt: skip
BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}

ELSEWHERE: Mapping[str, str] = {
    "share.": ABSENT.format("share groups"),
    "streams.": ABSENT.format("groups of the streams protocol"),
}


def problem(name: str, text: str) -> str | None:
    """What is wrong with setting `name` to `text` on a group, or None."""
    return problem_with(name, text, "a group", BY_NAME, ELSEWHERE)


def contradiction(group: Mapping[str, str], broker: Mapping[str, str]) -> str | None:
    """Why these settings contradict each other, or None."""
    interval_ms = value_in_force(BY_NAME[HEARTBEAT_INTERVAL], group, broker)
    timeout_ms = value_in_force(BY_NAME[SESSION_TIMEOUT], group, broker)
    if timeout_ms > interval_ms:
        return None
    return f"{SESSION_TIMEOUT}={timeout_ms} must be greater than {HEARTBEAT_INTERVAL}={interval_ms}"
