"""The state of share partitions, as brokers keep it with the coordinator: over real bytes, over restarts, pruned."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.raw_client import RawClient

TOPIC = uuid.UUID(int=77)
KEY = "cooks:AAAAAAAAAAAAAAAAAAAATQ:0"


class StateClient(RawClient):
    topic_id = TOPIC  # there is no such topic

    def create_topic(self) -> None:
        topic = Message(name="orders", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        made = self.call(ApiKey.CREATE_TOPICS, 7, Message(topics=[topic], timeout_ms=20_000, validate_only=False))
        self.topic_id = made.topics[0].topic_id

    def ready(self) -> None:
        """The coordinator is known, and has loaded."""
        found = self.call(ApiKey.FIND_COORDINATOR, 6, Message(key_type=2, coordinator_keys=[KEY]))
        assert [answer.error_code for answer in found.coordinators] == [0]
        while self.summary().error_code == ErrorCode.coordinator_load_in_progress:
            pass

    def ask(self, api_key: ApiKey, version: int, partition: int = 0, **data: Any) -> Message:
        topics = [Message(topic_id=self.topic_id, partitions=[Message(partition=partition, **data)])]
        response = self.call(api_key, version, Message(group_id="cooks", topics=topics))
        assert [topic.topic_id for topic in response.results] == [self.topic_id]
        (result,) = response.results[0].partitions
        assert result.partition == partition
        return result

    def initialize(self, epoch: int, start: int, partition: int = 0) -> int:
        sent = {"state_epoch": epoch, "start_offset": start}
        return int(self.ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, partition, **sent).error_code)

    def write(self, version: int, start: int, *batches: tuple[int, int, int, int], epoch: int = 1) -> int:
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        changed = [Message(**dict(zip(names, batch, strict=True))) for batch in batches]
        sent = {"state_epoch": epoch, "leader_epoch": 4, "start_offset": start, "delivery_complete_count": 3}
        return int(self.ask(ApiKey.WRITE_SHARE_GROUP_STATE, version, state_batches=changed, **sent).error_code)

    def read(self) -> Message:
        return self.ask(ApiKey.READ_SHARE_GROUP_STATE, 0, leader_epoch=4)

    def summary(self, version: int = 1) -> Message:
        return self.ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, version, leader_epoch=-1)


@pytest.fixture
def client(broker: Any) -> Iterator[StateClient]:
    with StateClient(broker.port) as client:
        client.ready()
        yield client


def test_the_state_survives_a_kill(broker: Any, client: StateClient) -> None:
    assert client.initialize(1, 5) == 0
    assert client.write(1, 6, (7, 9, 2, 1), (10, 12, 0, 2)) == 0
    assert client.write(0, 6, (20, 20, 4, 5)) == 0
    broker.kill()
    broker.restart()
    with StateClient(broker.port) as again:
        again.ready()
        found = again.read()
        assert (found.error_code, found.state_epoch, found.start_offset) == (0, 1, 6)
        batches = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in found.state_batches]
        assert batches == [(7, 9, 2, 1), (10, 12, 0, 2), (20, 20, 4, 5)]
        assert (again.summary().leader_epoch, again.summary(0).start_offset) == (4, 6)


def test_old_epochs_and_unknown_partitions_are_refused(client: StateClient) -> None:
    assert client.read().error_code == ErrorCode.invalid_request
    assert client.initialize(2, 5) == 0
    assert client.write(1, 6, epoch=1) == ErrorCode.fenced_state_epoch
    assert client.ask(ApiKey.READ_SHARE_GROUP_STATE, 0, leader_epoch=8).error_code == 0
    assert client.write(1, 6, epoch=2) == ErrorCode.fenced_leader_epoch
    assert client.ask(ApiKey.DELETE_SHARE_GROUP_STATE, 0).error_code == 0
    assert client.read().error_code == ErrorCode.invalid_request


def test_a_key_that_names_no_share_partition_is_refused(client: StateClient) -> None:
    found = client.call(ApiKey.FIND_COORDINATOR, 6, Message(key_type=2, coordinator_keys=["cooks"]))
    assert [answer.error_code for answer in found.coordinators] == [ErrorCode.invalid_request]


def test_what_was_stored_again_is_pruned_and_lost_topics_are_forgotten(broker_factory: Any) -> None:
    broker = broker_factory(
        {
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.prune.interval.ms": "60000",
        }
    )
    with StateClient(broker.port) as client:
        client.ready()
        assert client.initialize(1, 7) == 0
        client.create_topic()
        assert client.initialize(1, 0, partition=1) == 0  # nobody writes to it any more
        assert client.initialize(1, 0) == 0
        for offset in range(600):
            assert client.write(1, offset, (offset, offset, 2, 1)) == 0
        for _ in range(2):
            broker.clock.advance(seconds=61)
        assert first_offset(client) >= 600
    broker.restart()
    with StateClient(broker.port) as again:
        again.ready()
        assert again.read().error_code == ErrorCode.invalid_request
        again.topic_id = client.topic_id
        assert again.read().start_offset == 599
        assert again.ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, 1).start_offset == 0


def first_offset(client: StateClient) -> int:
    place = Message(partition_index=0, current_leader_epoch=-1, timestamp=-2)
    asked = Message(replica_id=-1, topics=[Message(name="__share_group_state", partitions=[place])])
    return int(client.call(ApiKey.LIST_OFFSETS, 7, asked).topics[0].partitions[0].offset)
