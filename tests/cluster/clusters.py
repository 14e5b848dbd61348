"""Clusters of real processes for tests: brokers on a real ZooKeeper, with what tests want to know and do to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli.local_cluster import BrokerProcess
from headrace.cli.local_zookeeper import free_ports
from tests.clients.patience import until

PATIENCE_S = 60.0


class Cluster:
    """Three brokers, unless a test has some of them away."""

    def __init__(self, folder: Path, zookeeper: str, brokers: int = 3, settings: str = "") -> None:
        config = folder / "broker.properties"
        config.write_text(settings)
        options = ["--config", str(config)]
        self.zookeeper = zookeeper
        self.brokers = {
            number: BrokerProcess(folder, number, zookeeper, port, [*options, "--rack", f"rack-{number}"])
            for number, port in enumerate(free_ports(brokers), start=1)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        until("every broker to know all others", self._all_known, PATIENCE_S)

    def _all_known(self) -> bool:
        """Replicas are placed on brokers that the controller has heard of."""
        return all(
            len(self.admin(number).list_topics(timeout=PATIENCE_S).brokers) == len(self.brokers)
            for number in self.brokers
        )

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    # --- what tests ask ---------------------------------------------------------------------------------------------

    def admin(self, number: int | None = None) -> AdminClient:
        """Through one broker, or through any."""
        bootstrap = self.bootstrap if number is None else self.brokers[number].address
        return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def metadata(self, topic: str | None = None) -> Any:
        return (
            self.admin().list_topics(topic, timeout=PATIENCE_S)
            if topic
            else self.admin().list_topics(timeout=PATIENCE_S)
        )

    def controller(self) -> int:
        """Who is the controller, once there is one that is alive."""

        def look() -> int | None:
            found = self.metadata()
            return found.controller_id if found.controller_id in found.brokers else None

        return until("a controller", look, PATIENCE_S)

    def leader(self, topic: str, partition: int = 0) -> int:
        def look() -> int | None:
            leader = self.metadata(topic).topics[topic].partitions[partition].leader
            return leader if leader > 0 else None

        return until(f"a leader of {topic}-{partition}", look, PATIENCE_S)

    def coordinator(self, key: str, internal_topic: str) -> int:
        """Who coordinates this group or transactional id."""
        from headrace.coordinators.runtime import partition_for

        partitions = self.metadata(internal_topic).topics[internal_topic].partitions
        return self.leader(internal_topic, partition_for(key, len(partitions)))

    # --- what tests do ----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 3, replicas: int = 3, **settings: str) -> None:
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = self.admin()  # it must live until the topic is made
        admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(PATIENCE_S)
        until(f"leaders of {name}", lambda: self._led(name, partitions), PATIENCE_S)

    def _led(self, name: str, partitions: int) -> bool:
        """Every broker has heard of the topic."""
        for number in self.brokers:
            known = self.admin(number).list_topics(name, timeout=PATIENCE_S).topics[name].partitions
            if len(known) != partitions or any(state.leader < 1 for state in known.values()):
                return False
        return True

    def wait_until_in_sync(self, topic: str) -> None:
        def in_sync(state: Any) -> bool:
            return sorted(state.isrs) == sorted(state.replicas) and state.leader > 0

        self._wait_for_partitions(f"all replicas of {topic} in sync", topic, in_sync)

    def _wait_for_partitions(self, what: str, topic: str, holds: Callable[[Any], bool]) -> None:
        """As every broker sees them: one that was away may still show what was before."""

        def look() -> bool:
            return all(
                holds(state)
                for number in self.brokers
                for state in self.admin(number).list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.values()
            )

        until(what, look, PATIENCE_S, pause_s=0.2)

    def spread_leaders(self, topic: str) -> None:
        """To where they were at first: after other tests one broker may lead all partitions."""
        self.wait_until_in_sync(topic)
        places = [TopicPartition(topic, number) for number in self.metadata(topic).topics[topic].partitions]
        admin = self.admin()  # it must live until it has its answer
        admin.elect_leaders(ElectionType.PREFERRED, places).result(PATIENCE_S)
        self._wait_for_partitions(
            f"the preferred leaders of {topic}", topic, lambda state: state.leader == state.replicas[0]
        )

    def restart(self, number: int) -> None:
        self.brokers[number].start()
        self.brokers[number].wait_until_ready()

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0, **settings})


def produced(producer: Producer, topic: str, values: list[bytes], partitions: int) -> list[bytes]:
    """Write them over the partitions; those that were acknowledged."""
    acknowledged: list[bytes] = []

    def told(value: bytes) -> Callable[[Any, Any], None]:
        return lambda error, message: acknowledged.append(value) if error is None else None

    for at, value in enumerate(values):
        producer.produce(topic, value, partition=at % partitions, on_delivery=told(value))
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0, "some records were neither acknowledged nor refused"
    return acknowledged


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
