"""A view of what is pending on a cluster: every broker knows it, leaders answer for it, and it outlives them."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import NewTopic

from tests.clients.patience import until
from tests.cluster.clusters import PATIENCE_S, Cluster

BASE, VIEW = "delayed", "delayed.pending"
PARTITIONS = 4


def park(cluster: Cluster, first: int, count: int) -> list[bytes]:
    producer = cluster.producer()
    values = [b"%d" % at for at in range(first, first + count)]
    for at, value in enumerate(values):
        producer.produce(BASE, value, partition=at % PARTITIONS, headers={"headrace.delay-ms": "86400000"})
        producer.produce(BASE, b"at once", partition=at % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    return values


def listed(cluster: Cluster, number: int) -> list[bytes]:
    """What a consumer in the rack of this broker gets, to the end."""
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap, "group.id": f"near-{number}", "auto.offset.reset": "earliest",
        "client.rack": f"rack-{number}", "enable.partition.eof": True, "enable.auto.commit": False, "log_level": 0,
    }  # fmt: skip
    consumer, found, ended = Consumer(settings), list[bytes](), set[int]()
    consumer.subscribe([VIEW])

    def at_end() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
        elif message is not None and message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        return len(ended) == PARTITIONS

    until(f"the end of {VIEW} in rack {number}", at_end, PATIENCE_S, pause_s=0)
    consumer.close()
    return sorted(found, key=int)


def test_what_is_pending_is_listed_by_leaders_and_outlives_them(cluster: Cluster) -> None:
    cluster.create_topic(BASE, PARTITIONS, min_insync_replicas="2", headrace_delay_enable="true")
    admin = cluster.admin(2)
    view = NewTopic(VIEW, -1, -1, config={"headrace.view.of": BASE, "headrace.view.pending": "true"})
    admin.create_topics([view])[VIEW].result(PATIENCE_S)
    until("the view on every broker", lambda: cluster._led(VIEW, PARTITIONS), PATIENCE_S)
    values = park(cluster, 0, 300)
    for number in cluster.brokers:
        assert listed(cluster, number) == values
    victim = cluster.leader(BASE)
    cluster.brokers[victim].kill()
    values += park(cluster, 300, 100)
    until("all that is pending, from other leaders", lambda: listed(cluster, victim) == values, PATIENCE_S)
    cluster.restart(victim)
    cluster.wait_until_in_sync(BASE)
    assert listed(cluster, victim) == values
    admin = cluster.admin()
    admin.delete_topics([VIEW])[VIEW].result(PATIENCE_S)
    admin.delete_topics([BASE])[BASE].result(PATIENCE_S)
