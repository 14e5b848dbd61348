"""The `broker` fixture as its users have it: a real client, a restart, a kill, and time that passes on demand."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.local_broker import LocalBroker

WAIT_S = 20.0


def produce(broker: LocalBroker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0


def new_consumer(broker: LocalBroker, **settings: object) -> Consumer:
    return Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"} | settings
    )


def read_all(broker: LocalBroker, topic: str) -> list[str]:
    """Every value of the topic's one partition."""
    consumer = new_consumer(broker)
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
        consumer.assign([TopicPartition(topic, 0, low)])
        values = []
        for _ in range(high - low):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            values.append((message.value() or b"").decode())
        return values
    finally:
        consumer.close()


def test_what_is_produced_can_be_consumed(broker: LocalBroker) -> None:
    produce(broker, "orders", "coffee", "tea")
    assert read_all(broker, "orders") == ["coffee", "tea"]


def test_the_data_lies_in_the_folder_of_the_test(broker: LocalBroker, tmp_path: Path) -> None:
    produce(broker, "orders", "coffee")
    assert broker.data.is_relative_to(tmp_path)
    assert any(path.suffix == ".log" and path.stat().st_size for path in broker.data.rglob("*"))


@pytest.mark.parametrize("ending", [LocalBroker.stop, LocalBroker.kill], ids=["clean stop", "kill"])
def test_a_restart_keeps_port_and_records(broker: LocalBroker, ending: Callable[[LocalBroker], None]) -> None:
    produce(broker, "orders", "coffee")
    port = broker.port
    ending(broker)
    broker.restart()
    assert broker.port == port
    produce(broker, "orders", "tea")
    assert read_all(broker, "orders") == ["coffee", "tea"]


def test_a_restart_keeps_the_time(broker: LocalBroker) -> None:
    broker.clock.advance(days=10)
    before_ms = broker.clock.now_ms()
    broker.restart()
    assert broker.clock.now_ms() >= before_ms


def test_records_are_gone_after_the_retention_and_not_before(broker: LocalBroker) -> None:
    produce(broker, "orders", "coffee")
    broker.clock.advance(days=13, hours=23)
    assert read_all(broker, "orders") == ["coffee"]
    broker.clock.advance(days=1, hours=1)
    assert read_all(broker, "orders") == []


def test_a_members_session_ends_when_time_passes_without_a_heartbeat(broker: LocalBroker) -> None:
    produce(broker, "orders", "coffee")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def members() -> int:
        return len(admin.describe_consumer_groups(["readers"])["readers"].result(WAIT_S).members)

    # Its next heartbeat is a quarter of an hour of real time away, so to the broker it is silent.
    patient = {"session.timeout.ms": 1_000_000, "heartbeat.interval.ms": 900_000, "max.poll.interval.ms": 1_000_000}
    silent = new_consumer(broker, **patient)
    try:
        silent.subscribe(["orders"])
        assert silent.poll(WAIT_S) is not None
        assert members() == 1
        broker.clock.advance(seconds=900)
        assert members() == 1
        broker.clock.advance(seconds=200)
        assert members() == 0
    finally:
        silent.unsubscribe()
        silent.close()


def test_brokers_of_one_factory_are_strangers(broker_factory: Callable[..., LocalBroker]) -> None:
    one, other = broker_factory(), broker_factory()
    produce(one, "orders", "coffee")
    assert one.port != other.port
    assert "orders" not in AdminClient({"bootstrap.servers": other.bootstrap}).list_topics(timeout=WAIT_S).topics


def test_a_factory_takes_settings(broker_factory: Callable[..., LocalBroker]) -> None:
    strict = broker_factory({"num.partitions": "3"})
    admin = AdminClient({"bootstrap.servers": strict.bootstrap})
    admin.create_topics([NewTopic("orders", -1, -1)])["orders"].result(WAIT_S)
    assert len(admin.list_topics(timeout=WAIT_S).topics["orders"].partitions) == 3


def test_a_wrong_setting_is_an_error_of_the_test(broker_factory: Callable[..., LocalBroker]) -> None:
    with pytest.raises(ValueError, match=r"num\.partitions"):
        broker_factory({"num.partitions": "many"})


def test_a_stopped_broker_answers_nobody_and_says_so_to_the_test(broker: LocalBroker) -> None:
    broker.stop()
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=0.2)
    with pytest.raises(RuntimeError, match="not running"):
        broker.clock.advance(seconds=1)


def test_time_does_not_go_back(broker: LocalBroker) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        broker.clock.advance(seconds=-1)


def test_the_plugin_costs_a_project_that_does_not_use_it_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_nothing_was_loaded():\n"
        "    assert 'headrace.testing.plugin' in sys.modules\n"
        "    assert not {'uvloop', 'kio', 'headrace.server', 'headrace.testing.local_broker'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_other.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
