"""Transactions and the read-process-write loop against a real broker."""

import asyncio
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from headrace.sdk import BadMessage, Consumer, Fenced, Message, Producer, Record, exactly_once, exactly_once_async
from headrace.testing.local_broker import LocalBroker

from .topics import create_topic, fill, read_all

IDLE_S = 5.0  # where a story cannot say how many messages it will read; the others end at their count


@pytest.fixture
def topics(broker: LocalBroker) -> LocalBroker:
    """A broker with the topics `numbers` (0 to 99 in two partitions) and `results`."""
    create_topic(broker, "numbers", 2)
    create_topic(broker, "results", 2)
    fill(broker, "numbers", 100)
    return broker


def results(broker: LocalBroker, isolation: str = "read_committed") -> list[str]:
    """Everything in `results`, sorted."""
    return read_all(broker, "results", 2, isolation)


def run(broker: LocalBroker, transform: Any, worker: str = "worker-0", **choices: Any) -> Any:
    settings = {"consume_from": "numbers", "produce_to": "results", "group": "g", "idle_s": IDLE_S, **choices}
    return exactly_once(broker.bootstrap, transform=transform, transactional_id=worker, **settings)


def wanted(first: int, last: int) -> list[str]:
    return sorted(f"{number}!" for number in range(first, last))


def shout(message: Message) -> str:
    return f"{message.text}!"


def test_every_input_has_its_result_once(topics: LocalBroker) -> None:
    tally = run(topics, shout, max_messages=100)
    assert (tally.read, tally.written, results(topics)) == (100, 100, wanted(0, 100))


def test_a_second_run_goes_on_where_the_first_one_ended(topics: LocalBroker) -> None:
    assert run(topics, shout, max_messages=30).read == 30
    assert run(topics, shout, max_messages=70).read == 70
    assert results(topics) == wanted(0, 100)


def test_a_transform_that_fails_leaves_its_batch_for_the_next_run(topics: LocalBroker) -> None:
    def fails_late(message: Message) -> str:
        if message.text == "60":
            raise ZeroDivisionError
        return shout(message)

    with pytest.raises(ZeroDivisionError):
        run(topics, fails_late, batch_messages=7)
    run(topics, shout)
    assert results(topics) == wanted(0, 100)


def test_a_transform_may_write_nothing_one_or_many(topics: LocalBroker) -> None:
    create_topic(topics, "others")

    def some(message: Message) -> Iterator[Any]:
        number = int(message.text)
        if number < 2:
            yield f"{number}a"
            yield Record(f"{number}b", key="k", tags=("t",))
            yield Record("elsewhere", topic="others")

    tally = run(topics, some, max_messages=100)
    assert (tally.read, tally.written, results(topics)) == (100, 6, ["0a", "0b", "1a", "1b"])


def test_a_result_without_a_topic_is_told(topics: LocalBroker) -> None:
    with pytest.raises(BadMessage, match="has no topic: give produce_to"):
        run(topics, shout, produce_to=None)


def test_two_workers_share_the_input(topics: LocalBroker) -> None:
    workers = [
        Thread(target=run, args=(topics, shout, f"worker-{each}"), kwargs={"batch_messages": 5}) for each in (0, 1)
    ]
    for worker in workers:
        worker.start()
    fill(topics, "numbers", 100, first=100)
    for worker in workers:
        worker.join(60)
    assert results(topics) == wanted(0, 200)


def test_the_loop_works_under_asyncio(topics: LocalBroker) -> None:
    async def later(message: Message) -> str:
        await asyncio.sleep(0)
        return shout(message)

    tally = asyncio.run(
        exactly_once_async(
            topics.bootstrap, consume_from="numbers", produce_to="results", group="g", max_messages=100,
            transform=later, transactional_id="worker-0",
        )
    )  # fmt: skip
    assert (tally.read, results(topics)) == (100, wanted(0, 100))


def test_a_worker_that_was_replaced_is_fenced_with_one_line(topics: LocalBroker) -> None:
    def replaced(message: Message) -> str:
        if message.text == "50":
            run(topics, shout, group="other", max_messages=1)
        return shout(message)

    with pytest.raises(
        Fenced, match="transaction of worker-0: a newer producer with the same transactional id"
    ) as caught:
        run(topics, replaced)
    assert "\n" not in str(caught.value)


def transactional(broker: LocalBroker, name: str = "t") -> Producer:
    return Producer(broker.bootstrap, delivery="exactly-once", transactional_id=name)


def test_a_block_that_raises_writes_nothing_for_readers_of_committed_messages(topics: LocalBroker) -> None:
    def fails(producer: Producer) -> None:
        with producer.transaction():
            producer.send("results", "never")
            producer.flush()
            raise ZeroDivisionError

    with transactional(topics) as producer:
        with pytest.raises(ZeroDivisionError):
            fails(producer)
        with producer.transaction():
            producer.send("results", "kept")
    assert results(topics) == ["kept"]
    assert results(topics, "read_uncommitted") == ["kept", "never"]


def test_a_fenced_producer_stays_fenced(topics: LocalBroker) -> None:
    zombie, heir = transactional(topics), transactional(topics)

    def rise() -> None:
        with zombie.transaction():
            zombie.send("results", "zombie")
            zombie.flush()
            with heir.transaction():
                heir.send("results", "heir")

    for _ in range(2):
        with pytest.raises(Fenced):
            rise()
    heir.close()
    assert results(topics) == ["heir"]


def test_after_an_abort_the_consumer_hands_the_same_messages_out_again(topics: LocalBroker) -> None:
    with (
        transactional(topics) as producer,
        Consumer(topics.bootstrap, "numbers", group="g", delivery="exactly-once") as consumer,
    ):
        consumer.seek_to_start()
        first = sorted(polled(consumer, 100))
        with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
            raise ZeroDivisionError
        assert sorted(polled(consumer, 100)) == first
        with producer.transaction(consumer):
            producer.send("results", "done")
        assert consumer.poll(timeout_s=0.3) == []


def polled(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    for _ in range(50):
        found += [int(message.text) for message in consumer.poll(count - len(found), timeout_s=0.2)]
        if len(found) == count:
            break
    return found
