"""Delivery and profile by name become librdkafka's settings, and no override breaks a promise."""

from typing import Any

import confluent_kafka
import pytest

from headrace.sdk.errors import BadSetting
from headrace.sdk.settings import consumer_settings, producer_settings

DELIVERIES = ("at-most-once", "at-least-once", "exactly-once")
PROFILES = ("throughput", "latency", "balanced")


def producer(delivery: str = "at-least-once", profile: str = "balanced", **overrides: Any) -> dict[str, Any]:
    return producer_settings("b:1", delivery, profile, "t" if delivery == "exactly-once" else None, overrides)


def consumer(delivery: str = "at-least-once", profile: str = "balanced", **overrides: Any) -> dict[str, Any]:
    return consumer_settings("b:1", "g", delivery, profile, overrides)


def test_at_most_once_never_sends_twice_and_commits_nothing_in_the_background() -> None:
    settings = producer("at-most-once")
    assert (settings["acks"], settings["retries"], settings["enable.idempotence"]) == ("0", 0, False)
    assert not consumer("at-most-once")["enable.auto.commit"]


def test_at_least_once_waits_for_all_and_commits_what_is_stored() -> None:
    settings = producer("at-least-once")
    assert (settings["acks"], settings["enable.idempotence"]) == ("all", True)
    assert settings["retries"] > 1_000_000
    reading = consumer("at-least-once")
    assert reading["enable.auto.commit"]
    assert not reading["enable.auto.offset.store"]


def test_exactly_once_is_transactional_and_reads_what_is_committed() -> None:
    assert producer("exactly-once")["transactional.id"] == "t"
    reading = consumer("exactly-once")
    assert (reading["isolation.level"], reading["enable.auto.commit"]) == ("read_committed", False)


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("profile", PROFILES)
def test_librdkafka_takes_every_combination(delivery: str, profile: str) -> None:
    confluent_kafka.Producer(producer(delivery, profile, log_level=0)).close()
    confluent_kafka.Consumer(consumer(delivery, profile, log_level=0)).close()


@pytest.mark.parametrize(
    ("delivery", "override"),
    [
        ("at-least-once", {"acks": 1}),
        ("at-least-once", {"request_required_acks": 1}),
        ("at-least-once", {"enable_idempotence": False}),
        ("at-most-once", {"message_send_max_retries": 5}),
        ("exactly-once", {"acks": "0"}),
    ],
)
def test_an_override_that_breaks_the_promise_is_refused_by_name(delivery: str, override: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=f"breaks delivery {delivery}"):
        producer(delivery, **override)


def test_a_consumer_keeps_its_promise_too() -> None:
    with pytest.raises(BadSetting, match=r"isolation\.level=read_uncommitted breaks delivery exactly-once"):
        consumer("exactly-once", isolation_level="read_uncommitted")
    assert consumer("at-least-once", isolation_level="read_uncommitted")["isolation.level"] == "read_uncommitted"


def test_the_same_word_for_the_same_promise_is_fine() -> None:
    assert producer("at-least-once", acks=-1)["acks"] == "all"


def test_overrides_have_the_names_of_kafka_with_dots_or_with_underscores() -> None:
    assert producer(linger_ms=7)["linger.ms"] == 7
    assert producer(**{"linger.ms": 8})["linger.ms"] == 8
    assert producer(queue_buffering_max_ms=9)["linger.ms"] == 9
    assert producer(log_level=0)["log_level"] == 0


def test_what_does_not_exist_is_told_with_what_does() -> None:
    with pytest.raises(BadSetting, match="at-most-once, at-least-once, exactly-once"):
        producer("twice")
    with pytest.raises(BadSetting, match="throughput, latency, balanced"):
        producer(profile="fast")
    with pytest.raises(BadSetting, match="bootstrap is empty"):
        producer_settings("", "at-least-once", "balanced", None, {})
    with pytest.raises(BadSetting, match="group is empty"):
        consumer_settings("b:1", "", "at-least-once", "balanced", {})


def test_exactly_once_and_a_transactional_id_need_each_other() -> None:
    with pytest.raises(BadSetting, match="needs a transactional_id"):
        producer_settings("b:1", "exactly-once", "balanced", None, {})
    with pytest.raises(BadSetting, match="transactional_id needs delivery exactly-once"):
        producer_settings("b:1", "at-least-once", "balanced", "t", {})
