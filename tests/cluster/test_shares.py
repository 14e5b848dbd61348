"""A share group on three brokers: stored states on other brokers than the records, and leaders that are killed."""

from __future__ import annotations

import time
from collections import Counter

from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.clients.patience import until
from tests.cluster.clusters import PATIENCE_S, Cluster, produced

GROUP, TOPIC = "shared-cooks", "shared"


def start_at_the_beginning(cluster: Cluster) -> None:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[entry])
    admin = cluster.admin()  # it must live until it has its answer
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def known() -> bool:
        """To every broker: one that leads a partition chooses where the group begins."""
        asked = ConfigResource(ResourceType.GROUP, GROUP)
        return all(
            asking.describe_configs([asked])[asked].result(PATIENCE_S)["share.auto.offset.reset"].value == "earliest"
            for asking in (cluster.admin(number) for number in cluster.brokers)
        )

    until("every broker to know where the group begins", known, PATIENCE_S)


def handle(consumers: list[ShareConsumer], handled: Counter[bytes], wanted: set[bytes]) -> None:
    """Accept what comes until all of it was handled, and that is stored."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not wanted <= handled.keys():
        missing = len(wanted - handled.keys())
        assert time.monotonic() < give_up_at, f"{missing} of {len(wanted)} records were not handed out"
        for consumer in consumers:
            messages = [message for message in consumer.poll(0.2) if message.error() is None]
            errors = {place: error for place, error in consumer.commit_sync(20).items() if error is not None}
            for message in messages:
                if not any(
                    (place.topic, place.partition) == (message.topic(), message.partition()) for place in errors
                ):
                    handled[message.value()] += 1


def test_a_group_goes_on_when_brokers_are_killed_one_after_the_other(cluster: Cluster) -> None:
    cluster.create_topic(TOPIC, 6, min_insync_replicas="2")
    start_at_the_beginning(cluster)
    producer = cluster.producer()
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "log_level": 0}
    consumers = [ShareConsumer(settings) for _ in range(2)]
    handled: Counter[bytes] = Counter()
    wanted = set[bytes]()
    try:
        for consumer in consumers:
            consumer.subscribe([TOPIC])
        for round_ in range(3):
            wanted |= set(produced(producer, TOPIC, [b"%d-%d" % (round_, at) for at in range(300)], 6))
            if round_ == 0:
                handle(consumers, handled, wanted)
                continue
            victim = cluster.leader(TOPIC) if round_ == 1 else cluster.leader("__share_group_state")
            cluster.brokers[victim].kill()
            handle(consumers, handled, wanted)
            cluster.restart(victim)
            for topic in (TOPIC, "__share_group_state", "__consumer_offsets"):
                cluster.wait_until_in_sync(topic)
    finally:
        for consumer in consumers:
            consumer.close()
    assert len(wanted) == 900
    assert handled == Counter(wanted), "records came back whose acknowledgement was confirmed"
