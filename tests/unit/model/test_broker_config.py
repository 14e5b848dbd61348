"""A broker's settings, from its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model import broker_config
from headrace.model.broker_config import BrokerConfig, load_broker_config, parse_broker_config
from headrace.model.failure import Failure
from headrace.world.disk import RealDisk


def test_a_file_sets_what_it_names_and_leaves_the_rest() -> None:
    text = "# a comment\n\n  num.partitions = 7\nauto.create.topics.enable=false\n! another\nlog.retention.hours=5\n"
    config = parse_broker_config(text, "server.properties")
    assert (config.num_partitions, config.auto_create_topics, config.broker_id) == (7, False, 1)
    assert config.settings == {
        "num.partitions": "7",
        "auto.create.topics.enable": "false",
        "log.retention.hours": "5",
    }


def test_the_defaults_of_a_broker_are_those_of_the_table() -> None:
    read_only = [setting for setting in broker_config.SETTINGS if setting.read_only]
    settings = {s.name: text for s in read_only if (text := s.text(s.default)) is not None}
    typed = broker_config.broker_config(settings)
    for field in BrokerConfig.__struct_fields__:
        if field != "settings":
            assert getattr(typed, field) == getattr(BrokerConfig(), field), field


def test_every_setting_that_is_read_at_start_reaches_the_broker() -> None:
    read_only = {setting.name for setting in broker_config.SETTINGS if setting.read_only}
    assert set(broker_config._FIELDS) == read_only
    assert set(broker_config._FIELDS.values()) == set(BrokerConfig.__struct_fields__) - {"settings"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num.partition=3", r"conf, line 1: a broker has no setting 'num.partition'; did you mean num.partitions\?"),
        ("\nnum.partitions=three", r"conf, line 2: num.partitions='three' is not of type int"),
        ("num.partitions=0", "line 1: .*out of range: 1 and more"),
        ("num.partitions=1\nnum.partitions=2", "line 2: num.partitions is set twice"),
        ("just words", "line 1: 'just words' is not of the form key=value"),
        ("ssl.keystore.location=/x", "line 1: .*belongs to TLS, which this version of headrace does not have"),
        ("sasl.enabled.mechanisms=PLAIN", "line 1: .*SASL"),
        ("quota.window.num=3", "line 1: .*quotas"),
        ("listeners=PLAINTEXT://:9092", "line 1: .*headrace serve --listen"),
        ("log.dirs=/x", "line 1: .*headrace serve --data"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, words: str) -> None:
    with pytest.raises(Failure, match=words):
        parse_broker_config(text, "conf")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    disk = RealDisk(1)
    with pytest.raises(Failure, match=r"cannot read the settings in .*missing\.properties: No such file"):
        load_broker_config(tmp_path / "missing.properties", disk)
    garbled = tmp_path / "garbled.properties"
    garbled.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Failure, match=r"garbled\.properties is not a text file"):
        load_broker_config(garbled, disk)
