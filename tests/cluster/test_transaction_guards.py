"""A transaction whose group's coordinator has left: librdkafka, left to itself, may wait for that one for ever."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, TopicPartition

from headrace.sdk.settings import TRANSACTION_GUARDS
from tests.clients.patience import until
from tests.cluster.clusters import PATIENCE_S, Cluster

NAME = "guarded"
GROUPS = [f"{NAME}-{number}" for number in range(3)]  # on the three partitions of the topic of offsets


def test_the_settings_of_the_sdk_get_a_transaction_over_a_coordinator_that_has_left(cluster: Cluster) -> None:
    cluster.create_topic(NAME, 3, min_insync_replicas="2")
    settings = {"transactional.id": NAME, "transaction.timeout.ms": 60_000, **TRANSACTION_GUARDS}
    producer = cluster.producer(**settings)
    producer.init_transactions(PATIENCE_S)
    first = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": NAME, "log_level": 0})
    first.committed([TopicPartition(NAME, 0)], PATIENCE_S)  # the topic of offsets is there after that
    first.close()
    cluster.spread_leaders("__consumer_offsets")
    kept = cluster.coordinator(NAME, "__transaction_state")
    coordinators = {group: cluster.coordinator(group, "__consumer_offsets") for group in GROUPS}
    group, victim = next((group, found) for group, found in coordinators.items() if found != kept)
    place = next(number for number in range(3) if cluster.leader(NAME, number) != victim)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})

    def write_and_send_offsets(offset: int) -> None:
        producer.begin_transaction()
        producer.produce(NAME, b"%d" % offset, partition=place)
        assert producer.flush(PATIENCE_S) == 0
        offsets = [TopicPartition(NAME, place, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)

    write_and_send_offsets(1)  # it remembers the group's coordinator from here on
    producer.commit_transaction(PATIENCE_S)
    cluster.wait_until_in_sync("__consumer_offsets")
    cluster.brokers[victim].stop()
    try:
        until("the producer to hear that a broker has left", lambda: victim not in producer.list_topics().brokers)
        call = threading.Thread(target=write_and_send_offsets, args=[2], daemon=True)
        call.start()
        call.join(2 * PATIENCE_S)
        assert not call.is_alive(), "send_offsets_to_transaction hangs"
        producer.commit_transaction(PATIENCE_S)
    finally:
        cluster.restart(victim)
    cluster.wait_until_in_sync("__consumer_offsets")
    (committed,) = consumer.committed([TopicPartition(NAME, place)], PATIENCE_S)
    consumer.close()
    assert committed.offset == 2
