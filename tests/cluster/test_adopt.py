"""A single broker with its data becomes the first broker of a cluster, and nothing of it is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.cli.local_cluster import BrokerProcess
from headrace.cli.local_zookeeper import free_ports
from headrace.testing.local_broker import LocalBroker
from tests.clients.patience import until
from tests.cluster.clusters import PATIENCE_S
from tests.zookeeper import fresh_hosts

SETTINGS = {"offsets.topic.num.partitions": "2"}


def headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = str(Path(sys.executable).with_name("headrace"))
    return subprocess.run([command, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})

    def ask() -> int | None:
        """librdkafka does not ask again by itself when the coordinator has just been elected."""
        try:
            offset: int = consumer.committed([TopicPartition("orders", 0)], timeout=PATIENCE_S)[0].offset
            return offset
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return None

    try:
        return until("the group's coordinator answers", ask, PATIENCE_S)
    finally:
        consumer.close()


def test_an_adopted_broker_keeps_its_records_groups_and_topics_and_gets_company(tmp_path: Path) -> None:
    hosts, data = fresh_hosts(), tmp_path / "broker-1"
    with LocalBroker(data, SETTINGS) as alone:
        producer = Producer({"bootstrap.servers": alone.bootstrap, "log_level": 0})
        for at in range(50):
            producer.produce("orders", b"%d" % at)
        assert producer.flush(PATIENCE_S) == 0
        consumer = Consumer({"bootstrap.servers": alone.bootstrap, "group.id": "readers", "log_level": 0})
        consumer.commit(offsets=[TopicPartition("orders", 0, 20)], asynchronous=False)
        consumer.close()
        refused = headrace("cluster", "adopt", "--data", str(data), "--zookeeper", hosts)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "stop its broker first" in refused.stderr
    adopted = headrace("cluster", "adopt", "--data", str(data), "--zookeeper", hosts)
    assert adopted.returncode == 0, adopted.stderr
    again = headrace("cluster", "adopt", "--data", str(data), "--zookeeper", hosts)
    assert "no metadata.db in it" in again.stderr
    solo = headrace("serve", "--data", str(data), "--listen", "127.0.0.1:0")
    assert solo.returncode == 1
    assert "start this broker in its cluster" in solo.stderr

    ports = free_ports(2)
    members = [BrokerProcess(tmp_path, number, hosts, port) for number, port in enumerate(ports, start=1)]
    try:
        for member in members:
            member.start()
        for member in members:
            member.wait_until_ready()
        bootstrap = ",".join(member.address for member in members)
        assert committed(bootstrap) == 20
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
        reader.assign([TopicPartition("orders", 0, 0)])
        seen: list[bytes] = []

        def gets_all() -> bool:
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                seen.append(message.value())
            return len(seen) >= 50

        until("the 50 records of before", gets_all, PATIENCE_S, pause_s=0)
        reader.close()
        assert seen == [b"%d" % at for at in range(50)]
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        assert sorted(admin.list_topics(timeout=PATIENCE_S).brokers) == [1, 2]
    finally:
        for member in members:
            member.kill()
