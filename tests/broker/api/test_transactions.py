"""The requests of transactions, version by version, over real bytes, and what Fetch makes of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.wire.batches import walk
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.broker.api.transaction_client import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    TOPIC,
    WRITE_MARKERS,
    TransactionClient,
)

NONE = 0
DELETE_RECORDS = 21


@pytest.fixture
def client(broker: Any) -> Iterator[TransactionClient]:
    with TransactionClient(broker.port) as client:
        client.create_topic()
        assert client.init() == NONE
        yield client


def code(name: str) -> int:
    return int(ErrorCode[name])


def test_every_version_adds_writes_and_ends(client: TransactionClient) -> None:
    for version in range(4):
        assert client.add(version, [0, 1]) == [NONE, NONE]
        assert client.produce(3 + 2 * version) == NONE
        assert client.end(version, commit=True) == NONE
    assert client.fetch().last_stable_offset == 8


@pytest.mark.parametrize("produce", [12, 13])
def test_with_transaction_version_2_writing_adds_the_partition(client: TransactionClient, produce: int) -> None:
    epochs = []
    for commit in (True, False, True):
        assert client.produce(produce) == NONE
        assert client.produce(produce) == NONE
        assert client.verify([0, 1]) == [NONE, code("transaction_abortable")]
        assert client.end(5, commit=commit) == NONE
        epochs.append(client.epoch)
    assert epochs == [1, 2, 3]
    found = client.fetch()
    assert [(gone.producer_id, gone.first_offset) for gone in found.aborted_transactions] == [(client.producer_id, 3)]
    headers = [header for _, header in walk(found.records)]
    markers = [(header.base_offset, header.producer_epoch) for header in headers if header.is_control]
    assert markers == [(2, 1), (5, 2), (8, 3)]


@pytest.mark.parametrize(("produce", "error"), [(10, "invalid_txn_state"), (11, "transaction_abortable")])
def test_a_partition_that_was_not_added_is_refused_before_it_is_written(
    client: TransactionClient, produce: int, error: str
) -> None:
    assert client.add(3, [1]) == [NONE]
    assert client.produce(produce, partition=0) == code(error)
    assert client.end_offset(committed=False) == 0


def test_a_late_write_after_the_end_is_refused(client: TransactionClient) -> None:
    client.add(3)
    assert client.produce(9) == NONE
    assert client.end(3, commit=True) == NONE
    assert client.produce(9) == code("invalid_txn_state")
    assert client.end_offset(committed=True) == 2


def test_a_late_write_with_the_old_epoch_is_refused(client: TransactionClient) -> None:
    assert client.produce(12) == NONE
    assert client.end(5, commit=True) == NONE
    assert client.produce(12, epoch=0) == code("invalid_producer_epoch")
    assert client.end(5, commit=True, epoch=0) == NONE, "the same end again"
    assert client.end(5, commit=False, epoch=0) == code("invalid_txn_state")


@pytest.mark.parametrize(
    ("version", "error"), [(0, "invalid_producer_epoch"), (1, "invalid_producer_epoch"), (2, "producer_fenced")]
)
def test_a_fenced_producer_is_told_in_the_words_of_its_version(
    broker: Any, client: TransactionClient, version: int, error: str
) -> None:
    client.add(3)
    with TransactionClient(broker.port) as second:
        assert second.init() == NONE
    assert client.add(version) == [code(error)]
    assert client.add_offsets(version) == code(error)
    assert client.end(version, commit=True) == code(error)
    assert client.produce(9) == code("invalid_producer_epoch")
    assert client.init(goes_on=True) == code("producer_fenced")
    assert client.init(3, goes_on=True) == code("invalid_producer_epoch")


@pytest.mark.parametrize("version", [11, 12])
def test_a_transaction_may_be_written_with_acks_1(client: TransactionClient, version: int) -> None:
    if version == 11:
        assert client.produce(version, acks=1) == code("transaction_abortable")
        assert client.add(3, [0]) == [NONE]
    assert client.produce(version, acks=1) == NONE
    assert client.fetch().last_stable_offset == 0
    assert client.end(5, commit=True) == NONE
    assert client.fetch().last_stable_offset == 2


def test_what_is_not_a_transaction_is_refused(client: TransactionClient) -> None:
    assert client.produce(9, transactional_id=None) == code("transactional_id_authorization_failed")
    assert client.add(3, [0, 9]) == [code("operation_not_attempted"), code("unknown_topic_or_partition")]
    client.id = ""
    assert client.add(3) == [code("invalid_request")]
    assert client.end(3, commit=True) == code("invalid_request")
    assert client.init() == code("invalid_request")
    client.id = "nobody"
    assert client.add(3) == [code("invalid_producer_id_mapping")]
    assert client.end(5, commit=True) == code("invalid_producer_id_mapping")
    client.id, client.producer_id = "x", 77
    assert client.produce(9) == code("invalid_producer_id_mapping")
    client.epoch = -1
    assert client.init(goes_on=True) == code("invalid_request")


def test_readers_of_committed_records_stop_before_an_open_transaction(client: TransactionClient) -> None:
    assert client.produce(12) == NONE
    open_now = client.fetch()
    assert (open_now.high_watermark, open_now.last_stable_offset, open_now.records) == (1, 0, b"")
    assert len(list(walk(client.fetch(committed=False).records))) == 1
    assert client.fetch(committed=False).aborted_transactions is None
    assert (client.end_offset(committed=True), client.end_offset(committed=False)) == (0, 1)
    assert client.end(5, commit=False) == NONE
    ended = client.fetch()
    assert (ended.last_stable_offset, len(ended.aborted_transactions)) == (2, 1)
    assert client.end_offset(committed=True) == 2


def test_a_waiting_reader_of_committed_records_wakes_with_the_end_and_not_before(
    broker: Any, client: TransactionClient
) -> None:
    with TransactionClient(broker.port) as reader:
        sent = reader.send_fetch(max_wait_ms=20_000)
        assert client.produce(12) == NONE
        assert client.produce(12) == NONE
        assert client.end(5, commit=True) == NONE
        answered, found = reader.receive_fetch()
        assert answered == sent
        assert [header.is_control for _, header in walk(found.records)] == [False, False, True]


def test_a_waiting_reader_of_all_records_gets_the_end_of_a_transaction_too(
    broker: Any, client: TransactionClient
) -> None:
    assert client.produce(12) == NONE
    with TransactionClient(broker.port) as reader:
        reader.send_fetch(committed=False, max_wait_ms=10_000, offset=1)
        assert client.end(5, commit=True) == NONE
        found = reader.receive_fetch()[1]
        assert [(header.base_offset, header.is_control) for _, header in walk(found.records)] == [(1, True)]


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_nobody_but_the_broker_writes_to_internal_topics(client: TransactionClient, topic: str) -> None:
    client.find("g", 0)
    assert client.produce(12, topic=topic) == code("invalid_topic_exception")
    assert client.produce(9, topic=topic, transactional_id=None, attributes=0) == code("invalid_topic_exception")
    cut = [Message(name=topic, partitions=[Message(partition_index=0, offset=-1)])]
    answer = client.call(DELETE_RECORDS, 2, Message(topics=cut, timeout_ms=1000)).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (code("invalid_topic_exception"), -1)


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_committed_with_the_transaction(client: TransactionClient, version: int) -> None:
    client.find("g", 0)
    if version < 5:
        assert client.add_offsets(min(version, 3)) == NONE
    assert client.send_offset(version, 5, partition=99) == code("unknown_topic_or_partition")
    assert client.send_offset(version, 5) == NONE
    assert client.committed(stable=False) == (-1, NONE)
    assert client.committed(stable=True) == (-1, code("unstable_offset_commit"))
    assert client.end(5 if version == 5 else 3, commit=True) == NONE
    assert client.committed(stable=True) == (5, NONE)
    if version < 5:
        assert client.add_offsets(min(version, 3)) == NONE
    assert client.send_offset(version, 9) == NONE
    assert client.end(5 if version == 5 else 3, commit=False) == NONE
    assert client.committed(stable=True) == (5, NONE)


@pytest.mark.parametrize(("version", "error"), [(3, "invalid_txn_state"), (4, "transaction_abortable")])
def test_offsets_of_a_group_that_was_not_added_are_refused(client: TransactionClient, version: int, error: str) -> None:
    client.find("g", 0)
    client.add(3)
    assert client.send_offset(version, 5) == code(error)
    assert client.committed(stable=True) == (-1, NONE)


def test_offsets_for_a_member_that_is_none_are_refused(client: TransactionClient) -> None:
    client.find("g", 0)
    assert client.send_offset(5, 5, generation=3, member="m") == code("illegal_generation")
    assert client.end(5, commit=True) == NONE
    assert client.committed(stable=True) == (-1, NONE)


@pytest.mark.parametrize("version", range(6))
def test_a_group_without_a_name_takes_no_offsets_whatever_the_transaction(
    client: TransactionClient, version: int
) -> None:
    client.find("", 0)
    assert client.send_offset(version, 5, group="") == code("invalid_group_id")
    client.id = "nobody"
    assert client.send_offset(version, 5, group="") == code("invalid_group_id")


def test_transactions_are_described_and_listed(client: TransactionClient) -> None:
    assert client.add(3, [0, 2]) == [NONE, NONE]
    (found,) = client.call(DESCRIBE_TRANSACTIONS, 0, Message(transactional_ids=["x"])).transaction_states
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", client.producer_id, 0)
    assert found.transaction_timeout_ms == 60_000
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [(TOPIC, [0, 2])]
    unknown = client.call(DESCRIBE_TRANSACTIONS, 0, Message(transactional_ids=["y", ""])).transaction_states
    assert [state.error_code for state in unknown] == [code("transactional_id_not_found"), code("invalid_request")]

    def listed(version: int, **filters: Any) -> list[str]:
        body = Message(**{"state_filters": [], "producer_id_filters": [], "duration_filter": -1} | filters)
        return [state.transactional_id for state in client.call(LIST_TRANSACTIONS, version, body).transaction_states]

    assert [listed(version) for version in range(3)] == [["x"]] * 3
    assert listed(0, state_filters=["Ongoing"]) == ["x"]
    assert listed(0, state_filters=["Empty"]) == []
    assert listed(0, producer_id_filters=[client.producer_id]) == ["x"]
    assert listed(0, producer_id_filters=[client.producer_id + 1]) == []
    assert listed(1, duration_filter=1_000_000) == []
    assert listed(2, transactional_id_pattern="[xyz]") == ["x"]
    assert listed(2, transactional_id_pattern="xx") == []
    strange = client.call(LIST_TRANSACTIONS, 0, Message(state_filters=["Strange", "Dead"], producer_id_filters=[]))
    assert (strange.unknown_state_filters, strange.transaction_states) == (["Strange"], [])
    bad = Message(state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern="(")
    assert client.call(LIST_TRANSACTIONS, 2, bad).error_code == code("invalid_regular_expression")


def test_an_id_without_a_transaction_is_listed_whatever_the_duration(client: TransactionClient) -> None:
    asked = Message(state_filters=[], producer_id_filters=[], duration_filter=0)
    (listed,) = client.call(LIST_TRANSACTIONS, 1, asked).transaction_states
    assert (listed.transactional_id, listed.transaction_state) == ("x", "Empty")


def test_producers_of_a_partition_are_described(client: TransactionClient) -> None:
    assert client.produce(12, partition=1) == NONE
    asked = Message(topics=[Message(name=TOPIC, partition_indexes=[0, 1, 9])])
    empty, busy, unknown = client.call(DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions
    assert (empty.error_code, empty.active_producers) == (NONE, [])
    (producer,) = busy.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (client.producer_id, 0, 0)
    assert producer.current_txn_start_offset == 0
    assert unknown.error_code == code("unknown_topic_or_partition")


def test_who_writes_where_no_topic_can_be_is_an_invalid_question(client: TransactionClient) -> None:
    topics = [Message(name=name, partition_indexes=[0]) for name in ("not ok", "absent")]
    found = client.call(DESCRIBE_PRODUCERS, 0, Message(topics=topics)).topics
    codes = [topic.partitions[0].error_code for topic in found]
    assert codes == [code("invalid_topic_exception"), code("unknown_topic_or_partition")]


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_of_another_coordinator_is_written_once(client: TransactionClient, version: int) -> None:
    assert client.produce(12) == NONE

    def write(epoch: int, coordinator_epoch: int = 3) -> list[int]:
        marker = Message(
            producer_id=client.producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[Message(name=TOPIC, partition_indexes=[0, 9])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=2 if version == 2 else 0,
        )
        answer = client.call(WRITE_MARKERS, version, Message(markers=[marker])).markers[0]
        assert answer.producer_id == client.producer_id
        return [part.error_code for part in answer.topics[0].partitions]

    gone = code("unknown_topic_or_partition")
    if version == 2:
        assert write(0) == [code("invalid_producer_epoch"), gone], "not above the records'"
    assert write(1) == [NONE, gone]
    assert write(1) == [NONE, gone]
    assert client.end_offset(committed=True) == 2
    assert write(2, coordinator_epoch=2) == [code("transaction_coordinator_fenced"), gone]


def test_time_is_up_for_old_and_new_clients(broker: Any, client: TransactionClient) -> None:
    assert client.produce(12) == NONE
    broker.clock.advance(seconds=61)
    assert client.produce(12) == code("transaction_abortable")
    assert client.produce(9) == code("unknown_producer_id")
    assert client.end(5, commit=True) == code("transaction_abortable")
    assert client.end(3, commit=True) == code("unknown_producer_id")
    assert client.end(5, commit=False) == NONE
    assert client.epoch == 1
    assert client.produce(12) == NONE
    assert client.end(5, commit=True) == NONE


def test_features_are_told_so_that_every_client_takes_them(client: TransactionClient) -> None:
    for version, lowest in ((3, 1), (4, 0)):
        body = Message(client_software_name="test", client_software_version="1")
        answer = client.call(18, version, body)
        supported = {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features}
        finalized = {
            feature.name: (feature.min_version_level, feature.max_version_level)
            for feature in answer.finalized_features
        }
        assert supported["transaction.version"] == (lowest, 2)
        assert finalized["transaction.version"] == (2, 2)
