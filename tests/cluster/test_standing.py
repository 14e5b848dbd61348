"""A broker and its cluster's ZooKeeper: away at the start, lost for a while, a session that ends, one id twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headrace.cli.local_cluster import BrokerProcess
from headrace.cli.local_zookeeper import LocalZooKeeper, free_ports
from headrace.client.blocking import BlockingConnection
from headrace.model.failure import Failure
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.clients.patience import until
from tests.cluster.clusters import PATIENCE_S, Cluster, produced
from tests.zookeeper import fresh_hosts


def brokers_seen(address: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    return sorted(admin.list_topics(timeout=PATIENCE_S).brokers)


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[list[LocalZooKeeper]]:
    """Three servers that are not started yet."""
    ports = free_ports(9)
    peers = {number: (ports[number], ports[number + 3]) for number in range(3)}
    members = {number + 1: pair for number, pair in peers.items()}
    servers = [
        LocalZooKeeper(tmp_path / f"zookeeper-{number}", ports[number + 5], number, members) for number in members
    ]
    yield servers
    for server in servers:
        server.kill()


def test_any_broker_takes_requests_for_the_controller(cluster: Cluster) -> None:
    """Asked with our own client: librdkafka goes to the controller by itself."""
    controller = cluster.controller()
    for number in (number for number in cluster.brokers if number != controller):
        name = f"asked-{number}"
        topic = Message(name=name, num_partitions=1, replication_factor=3, assignments=[], configs=[])
        new = Message(name=name, count=2, assignments=None)
        with BlockingConnection(("127.0.0.1", cluster.brokers[number].port), "asker", PATIENCE_S) as asked:
            made = asked.call(19, Message(topics=[topic], timeout_ms=30_000, validate_only=False))
            assert [(answer.name, answer.error_code, answer.num_partitions) for answer in made.topics] == [(name, 0, 1)]
            again = asked.call(19, Message(topics=[topic], timeout_ms=30_000, validate_only=False))
            assert again.topics[0].error_code == ErrorCode.topic_already_exists
            grown = asked.call(37, Message(topics=[new], timeout_ms=30_000, validate_only=False))
            assert [answer.error_code for answer in grown.results] == [0]
            gone = asked.call(20, Message(topics=[Message(name=name, topic_id=None)], timeout_ms=30_000))
            assert [answer.error_code for answer in gone.responses] == [0]
    produced(cluster.producer(), "made-by-asking", [b"x"], 1)
    assert len(cluster.metadata("made-by-asking").topics["made-by-asking"].partitions[0].replicas) == 3


def test_a_broker_whose_session_ended_comes_back_without_a_restart(cluster: Cluster) -> None:
    cluster.create_topic("paused", 3, min_insync_replicas="2")
    victim = cluster.leader("paused")
    process = cluster.brokers[victim]
    pid, others = process.pid, [broker for number, broker in cluster.brokers.items() if number != victim]
    process.pause(True)
    try:
        until("the others miss it", lambda: victim not in brokers_seen(others[0].address), PATIENCE_S, pause_s=0.2)
        assert len(produced(cluster.producer(), "paused", [b"%d" % at for at in range(30)], 3)) == 30
    finally:
        process.pause(False)
    until("it says so", lambda: "session with the cluster's store is lost" in process.said(), PATIENCE_S)
    cluster.wait_until_in_sync("paused")
    assert process.pid == pid
    assert process.ended() is None


def test_brokers_wait_for_zookeeper_survive_a_lost_server_and_come_back_after_all_were_lost(
    ensemble: list[LocalZooKeeper], tmp_path: Path
) -> None:
    hosts = ",".join(server.address for server in ensemble)
    cluster = Cluster(tmp_path, f"{hosts}/deep/folder", brokers=2)
    try:
        for broker in cluster.brokers.values():
            broker.start()
        first, second = cluster.brokers.values()
        until("it says that it waits", lambda: "cannot be reached; waiting for it" in first.said(), PATIENCE_S)
        for server in ensemble:
            server.start()
        for broker in cluster.brokers.values():
            broker.wait_until_ready()
        cluster.create_topic("lasting", 2, 2, min_insync_replicas="2")
        producer = cluster.producer()
        acknowledged = produced(producer, "lasting", [b"a%d" % at for at in range(20)], 2)
        ensemble[0].kill()
        acknowledged += produced(producer, "lasting", [b"b%d" % at for at in range(20)], 2)
        assert brokers_seen(second.address) == [1, 2]
        for server in ensemble[1:]:
            server.kill()
        until("it says that it is cut off", lambda: "store cannot be reached" in first.said(), PATIENCE_S)
        for server in ensemble:
            server.start()
        acknowledged += produced(producer, "lasting", [b"c%d" % at for at in range(20)], 2)
        assert len(acknowledged) == 60
        cluster.wait_until_in_sync("lasting")
        assert first.ended() is None
        assert second.ended() is None
    finally:
        cluster.stop()


def test_two_brokers_with_one_id_and_a_folder_of_another_cluster_are_refused_in_one_line(
    cluster: Cluster, tmp_path: Path
) -> None:
    strangers = [
        (
            cluster.zookeeper,
            "id 1 is already running in this cluster, at .*:.*, registered since .* UTC; give this one another",
        ),
        (fresh_hosts(), "belongs to cluster"),
    ]
    for zookeeper, complaint in strangers:  # one folder: the first attempt makes it one of this cluster
        broker = BrokerProcess(tmp_path, 1, zookeeper, free_ports(1)[0])
        broker.start()
        with pytest.raises(Failure, match=complaint):
            broker.wait_until_ready()
        said = broker.said()
        assert sum(line.startswith("headrace: ") for line in said.splitlines()) == 1, said
        assert "Traceback" not in said
        broker.stop()
    assert brokers_seen(cluster.bootstrap) == [1, 2, 3]


def test_a_clean_stop_hands_its_leaderships_over_and_takes_part_again(cluster: Cluster) -> None:
    cluster.create_topic("handed-over", 3, min_insync_replicas="2")
    producer = cluster.producer()
    before = produced(producer, "handed-over", [b"a%d" % at for at in range(30)], 3)
    victim = cluster.leader("handed-over")
    assert cluster.brokers[victim].stop() == 0
    left = next(number for number in cluster.brokers if number != victim)

    def led_by_others() -> bool:
        found = cluster.admin(left).list_topics("handed-over", timeout=PATIENCE_S).topics["handed-over"]
        return all(state.leader not in (victim, -1) for state in found.partitions.values())

    until("others lead", led_by_others, PATIENCE_S)
    after = produced(producer, "handed-over", [b"b%d" % at for at in range(30)], 3)
    assert len(before) == len(after) == 30
    cluster.restart(victim)
    cluster.wait_until_in_sync("handed-over")
