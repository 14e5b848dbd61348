"""A view on a cluster with a real ZooKeeper: every broker knows it, followers serve it, and it outlives its leaders."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import NewTopic

from tests.clients.patience import until
from tests.cluster.clusters import PATIENCE_S, Cluster
from tests.cluster.test_survival import read_all

BASE, VIEW = "tagged", "tagged.red"


def write(cluster: Cluster, first: int, count: int) -> list[bytes]:
    """Records with tags by turns; those that are red."""
    producer, red = cluster.producer(), []
    for at in range(first, first + count):
        tag = (b"red", b"green", b"blue")[at % 3]
        producer.produce(BASE, b"%d" % at, partition=at % 4, headers=[("headrace.tag", tag)])
        red += [b"%d" % at] if tag == b"red" else []
    assert producer.flush(PATIENCE_S) == 0
    return red


def read_nearby(cluster: Cluster, number: int) -> tuple[list[bytes], set[int]]:
    """What a consumer in the rack of this broker gets, to the end."""
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap, "group.id": f"near-{number}", "auto.offset.reset": "earliest",
        "client.rack": f"rack-{number}", "enable.partition.eof": True, "log_level": 0,
    }  # fmt: skip
    consumer, found, ended = Consumer(settings), list[bytes](), set[int]()
    consumer.subscribe([VIEW])

    def at_end() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
        elif message is not None and message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        return len(ended) == 4

    until(f"the end of {VIEW} in rack {number}", at_end, PATIENCE_S, pause_s=0)
    consumer.close()
    return found, ended


def test_a_view_is_known_to_every_broker_and_outlives_its_leaders(cluster: Cluster) -> None:
    cluster.create_topic(BASE, 4, min_insync_replicas="2", headrace_tags_enable="true")
    admin = cluster.admin(2)
    view = NewTopic(VIEW, -1, -1, config={"headrace.view.of": BASE, "headrace.view.tags": "red"})
    admin.create_topics([view])[VIEW].result(PATIENCE_S)
    until("the view on every broker", lambda: cluster._led(VIEW, 4), PATIENCE_S)
    red = write(cluster, 0, 600)
    for number in cluster.brokers:
        found, _ = read_nearby(cluster, number)
        assert sorted(found, key=int) == red
    victim = cluster.leader(BASE)
    assert cluster.leader(VIEW) == victim
    cluster.brokers[victim].kill()
    red += write(cluster, 600, 300)
    assert sorted(read_all(cluster, VIEW, 4), key=int) == red
    cluster.restart(victim)
    cluster.wait_until_in_sync(BASE)
    assert sorted(read_all(cluster, VIEW, 4), key=int) == red
    admin = cluster.admin()
    admin.delete_topics([VIEW])[VIEW].result(PATIENCE_S)
    admin.delete_topics([BASE])[BASE].result(PATIENCE_S)
