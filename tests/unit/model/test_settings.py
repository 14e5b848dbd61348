"""Settings as text become values, or say in a sentence why not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from headrace.model import broker_config, topic_config
from headrace.model.settings import Setting, SettingType
from headrace.model.topic_config import TopicConfig

ROOT = Path(__file__).parents[3]
EVERY = [*topic_config.SETTINGS, *broker_config.SETTINGS]


@pytest.mark.parametrize("setting", EVERY, ids=lambda setting: setting.name)
def test_a_default_is_a_value_that_could_be_set(setting: Setting) -> None:
    text = setting.text(setting.default)
    if text is not None:
        assert setting.parse(text) == setting.default
    assert setting.meaning


def test_the_defaults_of_a_topic_are_those_of_the_table() -> None:
    assert topic_config.topic_config({}, {}) == TopicConfig()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("retention.ms", "soon", "is not of type long"),
        ("retention.ms", "-2", "out of range: -1 and more"),
        ("retention.ms", str(2**63), "out of range"),
        ("segment.bytes", str(2**31), "out of range"),
        ("min.cleanable.dirty.ratio", "1.5", "out of range: 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "out of range"),
        ("preallocate", "yes", "is not of type boolean"),
        ("cleanup.policy", "compact,archive", "choose from delete, compact"),
        ("compression.type", "brotli", "choose from producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("retention_ms", "1", "did you mean retention.ms?"),
        ("headrace.ttl.dlq", "dead", "belongs to expiry with a dead letter topic, which this version"),
        ("headrace.dedup.window.ms", "-1", "out of range: 0 and more"),
        ("headrace.dedup.max.bytes", "1023", "out of range: 1024 and more"),
        ("headrace.delay.enable", "yes", "is not of type boolean"),
        ("remote.storage.enable", "true", "tiered storage"),
    ],
)
def test_what_is_wrong_with_a_topics_setting_is_said(name: str, text: str, words: str) -> None:
    assert words in (topic_config.problem(name, text) or "")


def test_a_topic_may_be_neither_deleted_from_nor_compacted() -> None:
    config = topic_config.topic_config({"cleanup.policy": ""}, {})
    assert (config.deleted, config.compacted) == (False, False)


def test_what_says_that_storage_is_not_tiered_is_taken() -> None:
    """Definitions of topics that were made for Kafka often say so."""
    assert topic_config.problem("remote.storage.enable", "false") is None
    assert topic_config.problem("local.retention.ms", "-2") is None
    assert topic_config.problem("local.retention.bytes", "1000") is None


def test_lists_may_have_spaces_and_repeat() -> None:
    policy = topic_config.BY_NAME["cleanup.policy"]
    assert policy.type is SettingType.LIST
    assert policy.parse(" compact , delete,compact") == ("compact", "delete")


@pytest.mark.parametrize(
    ("topic", "broker", "expected"),
    [
        ({}, {}, 14 * 24 * 3600 * 1000),
        ({"retention.ms": "1"}, {"log.retention.ms": "2"}, 1),
        ({}, {"log.retention.ms": "2", "log.retention.minutes": "3"}, 2),
        ({}, {"log.retention.minutes": "3", "log.retention.hours": "4"}, 180_000),
        ({}, {"log.retention.hours": "4"}, 4 * 3600 * 1000),
        ({}, {"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_most_specific_retention_wins(topic: dict[str, str], broker: dict[str, str], expected: int) -> None:
    assert topic_config.topic_config(topic, broker).retention_ms == expected


def test_the_page_of_settings_is_current() -> None:
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "tools" / "settings_page.py")
    assert spec is not None
    assert spec.loader is not None
    tool: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE.read_text() == tool.page(), "run: python tools/settings_page.py"
