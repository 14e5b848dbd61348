"""Share groups on a real broker, over a socket, with a share coordinator in the test's memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headrace.server.broker import Broker
from headrace.testing.local_broker import LocalBroker
from headrace.testing.plugin import BrokerFactory
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.raw_client import RawClient
from tests.share_states import MemoryStates

PATIENCE_S = 30
SHARE_APIS = {76, 77, 90, 91, 92}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> MemoryStates:
    memory = MemoryStates()
    monkeypatch.setattr(Broker, "_share_states", lambda self: memory)
    return memory


@pytest.fixture
def shared(states: MemoryStates, broker_factory: BrokerFactory) -> LocalBroker:
    broker = broker_factory()
    with RawClient(broker.port) as client:
        topic = Message(name="orders", num_partitions=2, replication_factor=1)
        client.call(ApiKey.CREATE_TOPICS, 7, Message(topics=[topic], timeout_ms=10_000))
        client.call(ApiKey.FIND_COORDINATOR, 4, Message(key_type=0, coordinator_keys=["s"]))
        await_coordinator(client)
    return broker


def await_coordinator(client: RawClient) -> None:
    def ready() -> bool:
        (group,) = client.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, Message(group_ids=["s"])).groups
        return group.error_code in (0, ErrorCode.group_id_not_found)

    await_that(ready, "the coordinator is loading")


def await_that(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"after {PATIENCE_S} s {otherwise} still"


def beat(client: RawClient, epoch: int, member: str = "m") -> Message:
    topics = ["orders"] if epoch == 0 else None
    body = Message(group_id="s", member_id=member, member_epoch=epoch, subscribed_topic_names=topics)
    return client.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)


def offsets(client: RawClient) -> dict[int, tuple[int, int]]:
    asked = Message(groups=[Message(group_id="s", topics=None)])
    (group,) = client.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked).groups
    assert group.error_code == 0
    return {part.partition_index: (part.start_offset, part.lag) for topic in group.topics for part in topic.partitions}


def test_share_groups_are_advertised_only_where_they_can_be_used(broker: LocalBroker) -> None:
    with RawClient(broker.port) as client:
        body = Message(client_software_name="raw", client_software_version="1")
        answer = client.call(ApiKey.API_VERSIONS, 4, body)
    served = {api.api_key for api in answer.api_keys}
    features = {feature.name for feature in answer.finalized_features}
    assert (ApiKey.SHARE_FETCH in served) == ("share.version" in features)
    assert served >= SHARE_APIS or not SHARE_APIS & served


def test_a_member_joins_and_goes_on_after_a_restart(shared: LocalBroker) -> None:
    with RawClient(shared.port) as client:
        joined = beat(client, 0)
        assert joined.error_code == 0
        assert [part.partitions for part in joined.assignment.topic_partitions] == [[0, 1]]
    shared.restart()
    with RawClient(shared.port) as client:
        await_coordinator(client)
        again = beat(client, joined.member_epoch)
        assert (again.error_code, again.member_epoch, again.assignment) == (0, joined.member_epoch, None)
        shared.clock.advance(seconds=46)
        assert beat(client, joined.member_epoch).error_code == ErrorCode.unknown_member_id


def test_lag_counts_what_is_not_done_with(shared: LocalBroker, states: MemoryStates) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": shared.bootstrap})
    for number in range(5):
        producer.produce("orders", str(number), partition=1)
    assert producer.flush(20) == 0
    with RawClient(shared.port) as client:
        beat(client, 0)
        assert offsets(client) == {0: (-1, -1), 1: (-1, -1)}
        for place, state in states.states.items():
            states.states[place] = replace(state, start_offset=0, delivery_complete_count=2 * place.partition)
        assert offsets(client) == {0: (0, 0), 1: (0, 3)}


def test_start_offsets_are_altered_and_deleted_with_the_group(shared: LocalBroker, states: MemoryStates) -> None:
    start = Message(partition_index=1, start_offset=4)
    altering = Message(group_id="s", topics=[Message(topic_name="orders", partitions=[start])])
    with RawClient(shared.port) as client:
        beat(client, 0)
        assert client.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, altering).error_code == ErrorCode.non_empty_group
        beat(client, -1)
        answer = client.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, altering)
        assert answer.responses[0].partitions[0].error_code == 0
        assert offsets(client)[1][0] == 4
        deleted = client.call(ApiKey.DELETE_GROUPS, 2, Message(groups_names=["s"]))
        assert deleted.results[0].error_code == 0
        assert states.states == {}


def test_states_of_a_deleted_topic_are_deleted(shared: LocalBroker, states: MemoryStates) -> None:
    with RawClient(shared.port) as client:
        beat(client, 0)
        assert len(states.states) == 2
        name = Message(name="orders", topic_id=None)
        client.call(ApiKey.DELETE_TOPICS, 6, Message(topics=[name], timeout_ms=10_000))
        await_that(lambda: not (offsets(client) or states.states), "there are states of the topic")


def test_settings_of_a_group_have_limits(shared: LocalBroker) -> None:
    def alter(client: RawClient, name: str, value: str) -> tuple[int, str]:
        change = Message(name=name, config_operation=0, value=value)
        resource = Message(resource_type=32, resource_name="s", configs=[change])
        (answer,) = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, Message(resources=[resource])).responses
        return answer.error_code, answer.error_message or ""

    with RawClient(shared.port) as client:
        assert alter(client, "share.record.lock.duration.ms", "20000")[0] == 0
        code, why = alter(client, "share.record.lock.duration.ms", "90000")
        assert (code, "from 15000 to 60000" in why) == (ErrorCode.invalid_config, True)
        assert alter(client, "share.auto.offset.reset", "by_duration:PT1H30M")[0] == 0
        code, why = alter(client, "share.auto.offset.reset", "by_duration:tomorrow")
        assert (code, "by_duration:PnDTnHnMn.nS" in why) == (ErrorCode.invalid_config, True)
        code, why = alter(client, "share.heartbeat.interval.ms", "46000")
        assert code == ErrorCode.invalid_config
