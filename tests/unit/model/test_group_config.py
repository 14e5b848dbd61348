"""Settings of share groups: durations, the limits of the broker, and what is in force."""

import pytest

from headrace.model import group_config
from headrace.model.broker_config import broker_config
from headrace.model.group_config import ShareGroupConfig, duration_ms, share_group_config

LOCK = "share.record.lock.duration.ms"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("PT1.5S", 1_500), ("PT0S", 0), ("pt1m", 60_000),
        ("P2DT3H4M5.678S", 183_845_678), ("P", None), ("PT", None), ("P1DT", None), ("-PT1H", None), ("PT-1H", None),
        ("1h", None), ("P1M", None), ("PT1H ", None), ("", None),
    ],
)  # fmt: skip
def test_durations_are_those_of_iso_8601(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms
    assert (group_config.problem("share.auto.offset.reset", f"by_duration:{text}") is None) == (
        duration_ms(text.strip()) is not None
    )


def test_an_unknown_place_to_start_is_refused_in_words() -> None:
    problem = group_config.problem("share.auto.offset.reset", "somewhere")
    assert problem is not None
    assert "latest, earliest or by_duration:PnDTnHnMn.nS" in problem


def test_what_a_group_does_not_say_the_broker_says() -> None:
    assert share_group_config({}, {}) == ShareGroupConfig()
    broker = {"group.share.record.lock.duration.ms": "1000", "group.share.delivery.count.limit": "7"}
    group = {
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.partition.max.record.locks": "300",
    }
    found = share_group_config(group, broker)
    assert (found.share_record_lock_ms, found.share_delivery_count_limit) == (1_000, 7)
    assert (found.share_read_committed, found.share_renew, found.share_max_record_locks) == (True, False, 300)
    assert found.share_reset_ms == 3_600_000
    assert ShareGroupConfig().share_reset_ms is None


def test_what_a_group_says_is_within_the_limits_of_the_broker() -> None:
    assert group_config.contradiction({LOCK: "60000"}, {}) is None
    problem = group_config.contradiction({LOCK: "60001"}, {})
    assert problem is not None
    assert "from 15000 to 60000" in problem
    wider = {"group.share.max.record.lock.duration.ms": "3600000"}
    assert group_config.contradiction({LOCK: "60001"}, wider) is None
    assert share_group_config({LOCK: "60001"}, wider).share_record_lock_ms == 60_001
    assert share_group_config({LOCK: "60001"}, {}).share_record_lock_ms == 60_000
    assert share_group_config({LOCK: "1000"}, {}).share_record_lock_ms == 15_000


def test_sessions_are_longer_than_the_interval_of_heartbeats() -> None:
    wide = {"group.share.max.heartbeat.interval.ms": "100000"}
    assert group_config.contradiction({"share.heartbeat.interval.ms": "44999"}, wide) is None
    problem = group_config.contradiction({"share.heartbeat.interval.ms": "45000"}, wide)
    assert problem == "share.session.timeout.ms=45000 must be greater than share.heartbeat.interval.ms=45000"


def test_limits_of_a_broker_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="each must be at least as great as the one before"):
        broker_config({"group.share.record.lock.duration.ms": "61000"})
    with pytest.raises(ValueError, match="out of range"):
        broker_config({"group.share.delivery.count.limit": "11"})
    broker_config({"group.share.record.lock.duration.ms": "61000", "group.share.max.record.lock.duration.ms": "61000"})
