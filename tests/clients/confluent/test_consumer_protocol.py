"""Consumer groups of the new protocol (KIP-848) with confluent-kafka: assignors, deaths, restarts, changes of protocol.

Each test has a broker of its own, in this process: its heartbeats are fast and its clock can be pushed. What is asked
of any broker is in test_new_protocol.py.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.testing.local_broker import LocalBroker
from headrace.testing.plugin import BrokerFactory
from tests.clients.confluent.moves import Moves
from tests.clients.confluent.reading import partitions_of, produce, read, settle, split_evenly
from tests.clients.patience import until

SETTINGS = {"group.consumer.heartbeat.interval.ms": "200", "group.consumer.session.timeout.ms": "6000"}
NewMember = Callable[..., Consumer]


@pytest.fixture
def broker(broker_factory: BrokerFactory) -> LocalBroker:
    return broker_factory(SETTINGS)


@pytest.fixture
def admin(broker: LocalBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def make_topic(admin: AdminClient, name: str, partitions: int = 4) -> str:
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


@pytest.fixture
def member(broker: LocalBroker) -> Iterator[NewMember]:
    """Makes members of group `g`: of the new protocol, unless told otherwise."""
    made: list[Consumer] = []

    def create(**config: Any) -> Consumer:
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        defaults: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 500,
        }
        made.append(Consumer(defaults | dotted))
        return made[-1]

    yield create
    for consumer in made:
        consumer.close()


def classic(member: NewMember, **config: Any) -> Consumer:
    return member(
        group_protocol="classic",
        partition_assignment_strategy="cooperative-sticky",
        session_timeout_ms=6000,
        heartbeat_interval_ms=200,
        **config,
    )


def kinds(admin: AdminClient) -> list[ConsumerGroupType]:
    return [group.type for group in admin.list_consumer_groups().result(10).valid]


def test_range_assignor_gives_the_same_numbers_of_both_topics(admin: AdminClient, member: NewMember) -> None:
    topics = [make_topic(admin, "t", 4), make_topic(admin, "u", 4)]
    members = [member(group_remote_assignor="range") for _ in range(2)]
    for consumer in members:
        consumer.subscribe(topics)
    for share in settle(members, split_evenly(8)):
        numbers = [{number for name, number in share if name == topic} for topic in topics]
        assert numbers[0] == numbers[1] in ({0, 1}, {2, 3})


def test_unknown_assignor_is_refused(admin: AdminClient, member: NewMember) -> None:
    consumer = member(group_remote_assignor="best")
    consumer.subscribe([make_topic(admin, "t")])

    def refused() -> str | None:
        message = consumer.poll(0.1)
        return str(message.error()) if message is not None and message.error() else None

    assert "assignor" in (until("the assignor is refused", refused) or "")


MEMBER_THAT_DIES = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "group.protocol": "consumer"})
consumer.subscribe([sys.argv[2]])
for _ in range(3000):
    consumer.poll(0.02)
"""


def test_partitions_of_a_member_that_dies_go_to_the_others(
    broker: LocalBroker, admin: AdminClient, member: NewMember
) -> None:
    topic, moves = make_topic(admin, "t"), Moves()
    stays = member()
    moves.subscribe(stays, topic)
    settle([stays], split_evenly(4))
    command = [sys.executable, "-c", MEMBER_THAT_DIES, broker.bootstrap, topic]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as dies:
        settle([stays], lambda shares: len(shares[0]) == 2)
        dies.kill()
    moves.forget()
    broker.clock.advance(seconds=3)
    settle([stays], split_evenly(4))
    assert moves.given == []


def test_group_takes_over_added_partitions(admin: AdminClient, member: NewMember) -> None:
    consumer = member()
    consumer.subscribe([make_topic(admin, "t", 1)])
    settle([consumer], split_evenly(1))
    admin.create_partitions([NewPartitions("t", 3)])["t"].result(30)
    settle([consumer], split_evenly(3))


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_restart_of_the_broker_changes_nothing_for_the_members(
    how: str, broker: LocalBroker, admin: AdminClient, member: NewMember
) -> None:
    topic, moves = make_topic(admin, "t"), [Moves(), Moves()]
    members = [member(), member()]
    for consumer, mine in zip(members, moves, strict=True):
        mine.subscribe(consumer, topic)
    before = settle(members, split_evenly(4))
    for mine in moves:
        mine.forget()
    if how == "kill":
        broker.kill()
    broker.restart()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(4):
        produce(producer, topic, [b"after"], partition=partition)
    seen: set[int] = set()

    def all_seen() -> bool:
        for consumer in members:
            seen.update(message.partition() for message in consumer.consume(10, 0.05) if not message.error())
        return len(seen) == 4

    until("members read on after the restart", all_seen)
    assert [partitions_of(consumer) for consumer in members] == before
    assert [(mine.given, mine.taken) for mine in moves] == [([], [])] * 2


def test_group_moves_to_the_new_protocol_and_back_while_it_reads(admin: AdminClient, member: NewMember) -> None:
    topic = make_topic(admin, "t")
    old = [classic(member), classic(member)]
    for consumer in old:
        consumer.subscribe([topic])
    settle(old, split_evenly(4))
    assert kinds(admin) == [ConsumerGroupType.CLASSIC]
    new = [member()]
    new[0].subscribe([topic])
    settle([*old, *new], split_evenly(4))
    assert kinds(admin) == [ConsumerGroupType.CONSUMER]
    old.pop().close()
    new.append(member())
    new[1].subscribe([topic])
    settle([*old, *new], split_evenly(4))
    old.pop().close()
    settle(new, split_evenly(4))
    old.append(classic(member))
    old[0].subscribe([topic])
    settle([*old, *new], split_evenly(4))
    for consumer in new:
        consumer.close()
    settle(old, split_evenly(4))
    assert kinds(admin) == [ConsumerGroupType.CLASSIC]


def test_empty_group_changes_its_kind_and_keeps_its_offsets(
    broker: LocalBroker, admin: AdminClient, member: NewMember
) -> None:
    topic = make_topic(admin, "t", 1)
    produce(Producer({"bootstrap.servers": broker.bootstrap}), topic, [b"%d" % number for number in range(10)])
    for number, create in enumerate([member, lambda: classic(member), member]):
        consumer = create()
        consumer.subscribe([topic])
        message = read(consumer, 1)[0]
        assert message.value() == b"%d" % number
        consumer.commit(message=message, asynchronous=False)
        consumer.close()
