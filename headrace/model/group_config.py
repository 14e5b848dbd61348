"""Every setting that a single group can have, with its type, default and meaning.

Those of consumer groups (KIP-848), whose members get their session timeout from the broker, start with `consumer.`,
those of share groups (KIP-932) with `share.`. A group's value takes precedence over the broker's (`broker_name`), and
that over the default here. A group need not exist to have settings, so it may have those of both types.

What a share group may set has limits that are themselves settings of the broker, `group.share.min.` and
`group.share.max.`. They are checked when a group's setting is changed, and again when it is used, because a broker may
be started with others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from headrace.model import broker_config
from headrace.model.settings import ABSENT, Setting, SettingType, problem_with
from headrace.model.topic_config import value_in_force

HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT = "consumer.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT = "share.session.timeout.ms"
LATEST, EARLIEST, BY_DURATION = "latest", "earliest", "by_duration:"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

_DAY_S = 86_400
_DURATION = (
    r"[Pp](?=.)(?:(?P<days>\d{1,9})[Dd])?"
    r"(?:[Tt](?=.)(?:(?P<hours>\d{1,9})[Hh])?(?:(?P<minutes>\d{1,9})[Mm])?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)[Ss])?)?"
)
_T = SettingType

SETTINGS: tuple[Setting, ...] = (
    Setting(HEARTBEAT_INTERVAL, _T.INT, 5_000, "the heartbeat interval of the members of a consumer group", low=1,
            broker_name="group.consumer.heartbeat.interval.ms"),
    Setting(SESSION_TIMEOUT, _T.INT, 45_000,
            "the session timeout of the members of a consumer group; longer than the heartbeat interval", low=1,
            broker_name="group.consumer.session.timeout.ms"),
    Setting("share.auto.offset.reset", _T.STRING, LATEST,
            "where a share group starts in a topic that is new to it: latest, earliest, or by_duration: with an ISO "
            "8601 duration in days, hours, minutes and seconds, such as by_duration:PT1H30M, for records that are at "
            "most so old", pattern=f"{LATEST}|{EARLIEST}|{BY_DURATION}{re.sub(r'[?]P<[a-z]+>', '?:', _DURATION)}",
            form="latest, earliest or by_duration:PnDTnHnMn.nS"),
    Setting("share.delivery.count.limit", _T.INT, 5,
            "how often a record is delivered to a share group before it counts as failed", low=2,
            broker_name="group.share.delivery.count.limit"),
    Setting(SHARE_HEARTBEAT_INTERVAL, _T.INT, 5_000, "the heartbeat interval of the members of a share group", low=1,
            broker_name="group.share.heartbeat.interval.ms"),
    Setting("share.isolation.level", _T.STRING, READ_UNCOMMITTED,
            "whether records of open and aborted transactions are delivered to a share group",
            choices=(READ_COMMITTED, READ_UNCOMMITTED)),
    Setting("share.partition.max.record.locks", _T.INT, 2_000,
            "how many records of a partition may be with the members of a share group at a time", low=100,
            broker_name="group.share.partition.max.record.locks"),
    Setting("share.record.lock.duration.ms", _T.INT, 30_000,
            "how long a member of a share group may work on a record before others get it", low=1_000,
            broker_name="group.share.record.lock.duration.ms"),
    Setting("share.renew.acknowledge.enable", _T.BOOLEAN, True,
            "whether members of a share group may ask for more time for a record"),
    Setting(SHARE_SESSION_TIMEOUT, _T.INT, 45_000,
            "the session timeout of the members of a share group; longer than the heartbeat interval", low=1,
            broker_name="group.share.session.timeout.ms"),
)  # fmt: skip
BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}

ELSEWHERE: Mapping[str, str] = {"streams.": ABSENT.format("groups of the streams protocol")}
_LIMITED = tuple(name for name in BY_NAME if f"group.share.max.{name.removeprefix('share.')}" in broker_config.BY_NAME)


class ShareGroupConfig(Struct, frozen=True):
    """The settings of one share group, every one with a value that its broker allows."""

    share_auto_offset_reset: str = LATEST  # or earliest, or by_duration:ISO
    share_delivery_count_limit: int = 5
    share_heartbeat_ms: int = 5_000
    share_max_record_locks: int = 2_000
    share_read_committed: bool = False
    share_record_lock_ms: int = 30_000
    share_renew: bool = True
    share_session_timeout_ms: int = 45_000

    @property
    def share_reset_ms(self) -> int | None:
        """With by_duration: how old the first record may be."""
        return duration_ms(self.share_auto_offset_reset.removeprefix(BY_DURATION))


def share_group_config(group: Mapping[str, str], broker: Mapping[str, str]) -> ShareGroupConfig:
    """`group` are the settings of the group itself, `broker` those in force on the broker."""

    def value(name: str) -> int:
        found = int(value_in_force(BY_NAME[name], group, broker))
        if name not in group:
            return found
        low, high = _limits(name, broker)
        return min(max(found, low), high)

    return ShareGroupConfig(
        share_auto_offset_reset=value_in_force(BY_NAME["share.auto.offset.reset"], group, broker),
        share_delivery_count_limit=value("share.delivery.count.limit"),
        share_heartbeat_ms=value(SHARE_HEARTBEAT_INTERVAL),
        share_max_record_locks=value("share.partition.max.record.locks"),
        share_read_committed=value_in_force(BY_NAME["share.isolation.level"], group, broker) == READ_COMMITTED,
        share_record_lock_ms=value("share.record.lock.duration.ms"),
        share_renew=value_in_force(BY_NAME["share.renew.acknowledge.enable"], group, broker),
        share_session_timeout_ms=value(SHARE_SESSION_TIMEOUT),
    )


def duration_ms(text: str) -> int | None:
    """An ISO 8601 duration, such as P1DT12H; None if it is none."""
    found = re.fullmatch(_DURATION, text)
    if found is None:
        return None
    days, hours, minutes, seconds = (found[name] or "0" for name in ("days", "hours", "minutes", "seconds"))
    whole, _, fraction = seconds.partition(".")
    total_s = int(days) * _DAY_S + int(hours) * 3_600 + int(minutes) * 60 + int(whole)
    return total_s * 1_000 + int((fraction + "000")[:3])


def problem(name: str, text: str) -> str | None:
    """What is wrong with setting `name` to `text` on a group, or None."""
    return problem_with(name, text, "a group", BY_NAME, ELSEWHERE)


def contradiction(group: Mapping[str, str], broker: Mapping[str, str]) -> str | None:
    """Why these settings contradict each other, or the limits of the broker, or None."""
    for name in _LIMITED:
        low, high = _limits(name, broker)
        if name in group and not low <= BY_NAME[name].parse(group[name]) <= high:
            rest = name.removeprefix("share.")
            return (
                f"{name}={group[name]} must be from {low} to {high}, as group.share.min.{rest} and "
                f"group.share.max.{rest} of the broker say"
            )
    for interval, timeout in ((HEARTBEAT_INTERVAL, SESSION_TIMEOUT), (SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT)):
        interval_ms = value_in_force(BY_NAME[interval], group, broker)
        timeout_ms = value_in_force(BY_NAME[timeout], group, broker)
        if timeout_ms <= interval_ms:
            return f"{timeout}={timeout_ms} must be greater than {interval}={interval_ms}"
    return None


def _limits(name: str, broker: Mapping[str, str]) -> tuple[int, int]:
    rest = name.removeprefix("share.")
    low, high = (broker_config.BY_NAME[f"group.share.{end}.{rest}"] for end in ("min", "max"))
    return value_in_force(low, broker, broker), value_in_force(high, broker, broker)
