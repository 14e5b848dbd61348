"""What is written to a node is what is read from it, and nothing else is."""

from __future__ import annotations

import uuid

import pytest

from headrace.cluster import znodes
from headrace.cluster.znodes import PartitionState, Registration, StoredTopic, UnreadableNode
from headrace.model.broker_token import BrokerToken


def test_everything_comes_back_as_it_was_written() -> None:
    topic = StoredTopic(uuid.UUID(int=9), 12, {"retention.ms": "5"})
    assert znodes.decode_topic("a", znodes.encode_topic(topic)) == topic
    state = PartitionState((1, 2), 2, 7, ((2, 20), (1, 10)), 4)
    assert znodes.decode_partition("/p", znodes.encode_partition(state)) == state
    broker = Registration("host", 9092, None, 3, token=BrokerToken("secret"))
    assert znodes.decode_registration(1, znodes.encode_registration(broker)) == broker
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("x")) == "x"
    assert znodes.decode_controller(znodes.encode_controller(4)) == 4
    assert znodes.decode_next_producer_id(znodes.encode_next_producer_id(5000)) == 5000
    assert znodes.decode_settings("/s", znodes.encode_settings({"a": "b"})) == {"a": "b"}
    assert znodes.decode_group_settings(znodes.encode_group_settings({"g": {"a": "b"}})) == {"g": {"a": "b"}}


def test_a_registration_from_before_there_were_tokens_is_read() -> None:
    old = b'{"version":1,"host":"h","port":9092,"rack":null,"epoch":3,"unbroken_since":2,"disk_since":1}'
    assert znodes.decode_registration(1, old) == Registration("h", 9092, None, 3, 2, 1)
    assert not znodes.broker_image(1, old).token.matches("")


def test_a_token_is_not_shown_by_what_holds_it() -> None:
    broker = Registration("host", 9092, None, 3, token=BrokerToken("secret"))
    image = znodes.broker_image(1, znodes.encode_registration(broker))
    assert image.token.matches("secret")
    assert "secret" not in f"{broker!r} {image} {image.token}"


@pytest.mark.parametrize("broker", ["", "1"])
def test_settings_of_one_broker_and_of_all_have_paths_of_their_own(broker: str) -> None:
    assert znodes.broker_of_settings(znodes.broker_settings_path(broker).rpartition("/")[2]) == broker


def test_a_node_of_a_later_version_is_refused_by_its_path() -> None:
    with pytest.raises(UnreadableNode, match="/topics/a has version 3: a later headrace"):
        znodes.decode_topic("a", b'{"version":3}')


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"garbage", b"\xff"])
def test_a_garbled_node_is_refused_by_its_path(data: bytes) -> None:
    with pytest.raises(UnreadableNode, match="/topics/a is garbled"):
        znodes.decode_topic("a", data)


def test_a_view_has_a_version_that_an_earlier_headrace_refuses() -> None:
    view = znodes.StoredTopic(uuid.uuid4(), 0, {"headrace.view.of": "a"}, uuid.uuid4())
    data = znodes.encode_topic(view)
    assert b'"version":2' in data
    assert znodes.decode_topic("a.errors", data) == view
    assert b'"version":1' in znodes.encode_topic(znodes.StoredTopic(uuid.uuid4(), 3, {}))
