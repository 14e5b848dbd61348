"""What three brokers promise together when one of them dies: nothing acknowledged is lost, and work goes on."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.clients.patience import until
from tests.cluster.clusters import PATIENCE_S, Cluster, produced


def read_all(cluster: Cluster, topic: str, partitions: int, **settings: Any) -> list[bytes]:
    """Everything from the beginning to the end of the topic as it is now."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-reader", "log_level": 0, **settings}
    )
    values: list[bytes] = []
    try:
        for number in range(partitions):
            place = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
            consumer.assign([TopicPartition(topic, number, low)])

            def at_end(high: int = high, place: TopicPartition = place) -> bool:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    values.append(message.value())
                position: int = consumer.position([place])[0].offset
                return position >= high or high == 0

            if high > low:
                until(f"the end of {topic}-{number} at {high}", at_end, PATIENCE_S, pause_s=0)
    finally:
        consumer.close()
    return values


def test_nothing_acknowledged_is_lost_when_a_leader_is_killed_in_the_middle(cluster: Cluster) -> None:
    cluster.create_topic("killed", 6, min_insync_replicas="2")
    producer = cluster.producer()
    before = produced(producer, "killed", [b"a%d" % at for at in range(300)], 6)
    victim = cluster.leader("killed")
    cluster.brokers[victim].kill()
    after = produced(producer, "killed", [b"b%d" % at for at in range(300)], 6)
    assert len(before) == len(after) == 300, "an idempotent producer gets through to the next leader"
    cluster.restart(victim)
    cluster.wait_until_in_sync("killed")
    assert sorted(read_all(cluster, "killed", 6)) == sorted(before + after)


def test_a_group_goes_on_after_its_coordinator_died(cluster: Cluster) -> None:
    cluster.create_topic("grouped", 3, min_insync_replicas="2")
    produced(cluster.producer(), "grouped", [b"%d" % at for at in range(30)], 3)
    settings = {
        "bootstrap.servers": cluster.bootstrap, "group.id": "workers", "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "log_level": 0,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe(["grouped"])
    seen: list[bytes] = []

    def gets(count: int) -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.append(message.value())
        return len(seen) >= count

    until("30 records", lambda: gets(30), PATIENCE_S, pause_s=0)
    consumer.commit(asynchronous=False)
    cluster.wait_until_in_sync("__consumer_offsets")
    victim = cluster.coordinator("workers", "__consumer_offsets")
    cluster.brokers[victim].kill()
    produced(cluster.producer(), "grouped", [b"%d" % at for at in range(30, 60)], 3)
    until("60 records", lambda: gets(60), PATIENCE_S, pause_s=0)
    consumer.close()
    assert sorted(seen, key=int) == [b"%d" % at for at in range(60)], "the group lost its place"
    cluster.restart(victim)
    cluster.wait_until_in_sync("grouped")


def test_a_transaction_is_whole_after_its_coordinator_died(cluster: Cluster) -> None:
    cluster.create_topic("paid", 6, min_insync_replicas="2")
    producer = cluster.producer(**{"transactional.id": "till", "transaction.timeout.ms": 20000})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for at in range(12):
        producer.produce("paid", b"c%d" % at, partition=at % 6)
    producer.commit_transaction(PATIENCE_S)
    cluster.wait_until_in_sync("__transaction_state")
    producer.begin_transaction()
    for at in range(12):
        producer.produce("paid", b"d%d" % at, partition=at % 6)
    assert producer.flush(PATIENCE_S) == 0
    victim = cluster.coordinator("till", "__transaction_state")
    cluster.brokers[victim].kill()
    producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("paid", b"never", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    producer.abort_transaction(PATIENCE_S)
    cluster.restart(victim)
    cluster.wait_until_in_sync("paid")
    values = read_all(cluster, "paid", 6, **{"isolation.level": "read_committed"})
    assert sorted(values) == sorted(b"%c%d" % (letter, at) for letter in b"cd" for at in range(12))
