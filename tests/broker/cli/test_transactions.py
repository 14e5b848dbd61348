"""`headrace transaction` against a real broker: open transactions, and one that hangs."""

import json
import shutil
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.broker.cli.conftest import Run


def opened(broker: Any, transactional_id: str = "billing-1", topic: str = "orders") -> Producer:
    """A producer with a transaction in which it has written one message."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(20) == 0
    return producer


def read_committed(broker: Any, topic: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, 20)
    consumer.close()
    return [message.value() for message in messages]


def test_transactions_are_listed_and_described(broker: Any, headrace: Run) -> None:
    assert "no transactions yet" in headrace("transaction", "list").stderr
    headrace("topic", "create", "orders")
    producer = opened(broker)
    (row,) = json.loads(headrace("transaction", "list", "--json").stdout)
    assert (row["id"], row["state"], row["partitions"]) == ("billing-1", "Ongoing", ["orders:0"])
    document = json.loads(headrace("transaction", "describe", "billing-1", "--json").stdout)
    assert document["partitions"] == [{"topic": "orders", "partition": 0, "first_offset": 0}]
    assert (document["producer"], document["epoch"]) == (row["producer"], row["epoch"])
    producer.commit_transaction(20)
    assert "CompleteCommit" in headrace("transaction", "describe", "billing-1").stdout
    assert "CompleteCommit" in headrace("transaction", "list").stdout


def test_an_open_transaction_is_aborted_by_its_id_and_its_producer_is_fenced(broker: Any, headrace: Run) -> None:
    headrace("topic", "create", "orders")
    producer = opened(broker)
    refused = headrace("transaction", "abort", "--at", "orders:0", "--yes", status=1)
    assert "no hanging transaction in orders partition 0" in refused.stderr
    assert "no hanging transactions" in headrace("transaction", "list", "--hanging").stderr
    asked = headrace("transaction", "abort", "billing-1", stdin="n\n", status=1)
    assert "fence its producer?" in asked.stderr
    headrace("transaction", "abort", "billing-1", "--yes")
    headrace("produce", "orders", stdin="after\n")
    assert read_committed(broker, "orders", 1) == [b"after"]
    with pytest.raises(KafkaException, match=r"fenced|epoch"):
        producer.commit_transaction(20)
    again = headrace("transaction", "abort", "billing-1", "--yes", status=1)
    assert "billing-1 has no open transaction" in again.stderr


def test_a_transaction_that_no_coordinator_knows_is_found_and_ended(broker: Any, headrace: Run) -> None:
    headrace("topic", "create", "orders")
    producer = opened(broker)
    broker.stop()
    for folder in broker.data.glob("**/__transaction_state-*"):
        shutil.rmtree(folder)
    broker.start()
    headrace("produce", "orders", stdin="after\n")
    (row,) = json.loads(headrace("transaction", "list", "--hanging", "--json").stdout)
    assert (row["topic"], row["partition"], row["first_offset"]) == ("orders", 0, 0)
    assert "abort --at" in headrace("transaction", "list", "--hanging").stderr
    other = headrace("transaction", "abort", "--at", "orders:0", "--producer", "77", "--yes", status=1)
    assert "no hanging transaction of producer 77" in other.stderr
    headrace("transaction", "abort", "--at", "orders:0", "--yes")
    assert read_committed(broker, "orders", 1) == [b"after"]
    assert json.loads(headrace("transaction", "list", "--hanging", "--json").stdout) == []
    del producer


def test_wrong_use_is_told(broker: Any, headrace: Run) -> None:
    headrace("transaction", "abort", status=2)
    headrace("transaction", "abort", "x", "--at", "orders:0", status=2)
    headrace("transaction", "abort", "--at", "orders", status=2)
    unknown = headrace("transaction", "describe", "nobody", status=1)
    assert "transactional id nobody is not known" in unknown.stderr
