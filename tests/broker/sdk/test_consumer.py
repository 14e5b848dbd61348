"""The blocking consumer against a real broker: what is committed when, where it reads, what the limits do."""

from itertools import islice
from threading import Thread
from typing import Any

import pytest

from headrace.sdk import BadSetting, Consumer, Message, Producer, SdkError, TopicMissing, Unreachable, WrongMoment
from headrace.testing.local_broker import LocalBroker
from headrace.world.clock import SystemClock

from .topics import create_topic, fill


@pytest.fixture
def numbers(broker: LocalBroker) -> LocalBroker:
    """A broker with the topic `numbers`: 0 to 9 in one partition."""
    create_topic(broker, "numbers")
    fill(broker, "numbers", 10)
    return broker


def consumer(broker: LocalBroker, **choices: Any) -> Consumer:
    return Consumer(broker.bootstrap, "numbers", **{"group": "g", **choices})


def read(reader: Consumer, count: int, **poll: Any) -> list[int]:
    """The next `count` numbers, or fewer if no more come."""
    return [int(message.text) for message in messages(reader, count, **poll)]


def messages(reader: Consumer, count: int, max_messages: int = 100) -> list[Message]:
    found: list[Message] = []
    for _ in range(50):
        found += reader.poll(min(max_messages, count - len(found)), timeout_s=0.2)
        if len(found) == count:
            break
    return found


def test_iterating_gives_every_message_in_order(numbers: LocalBroker) -> None:
    with consumer(numbers) as reader:
        assert [int(message.text) for message in islice(reader, 10)] == list(range(10))


def test_polling_gives_batches(numbers: LocalBroker) -> None:
    with consumer(numbers) as reader:
        assert len(messages(reader, 4)) == 4
        assert read(reader, 6) == [4, 5, 6, 7, 8, 9]


# --- what comes again after a crash ---


def test_at_least_once_brings_again_what_was_not_finished(numbers: LocalBroker) -> None:
    with consumer(numbers) as reader:
        for message in reader:
            if message.text == "4":
                break  # the program stops in the middle of 4: 0 to 3 are done
    with consumer(numbers) as reader:
        assert read(reader, 1) == [4]


def test_at_least_once_brings_the_whole_batch_again_if_it_was_not_finished(numbers: LocalBroker) -> None:
    with consumer(numbers) as reader:
        assert read(reader, 5) == [0, 1, 2, 3, 4]
    with consumer(numbers) as reader:
        assert read(reader, 1) == [0]


def test_commit_says_that_everything_handed_out_is_done(numbers: LocalBroker) -> None:
    with consumer(numbers) as reader:
        read(reader, 5)
        reader.commit()
    with consumer(numbers) as reader:
        assert read(reader, 1) == [5]


def test_at_most_once_never_brings_anything_twice(numbers: LocalBroker) -> None:
    with consumer(numbers, delivery="at-most-once") as reader:
        assert read(reader, 3, max_messages=3) == [0, 1, 2]
    with consumer(numbers, delivery="at-most-once") as reader:
        assert read(reader, 1) == [3]


def test_messages_are_acknowledged_one_by_one_in_any_order(numbers: LocalBroker) -> None:
    with consumer(numbers, auto_ack=False) as reader:
        found = messages(reader, 6)
        reader.ack(found[5], found[0], found[1])
        assert reader.in_flight == 3
        reader.commit()
    with consumer(numbers, auto_ack=False) as reader:
        assert read(reader, 1) == [2]


def test_exactly_once_commits_in_a_transaction_only(numbers: LocalBroker) -> None:
    with consumer(numbers, delivery="exactly-once") as reader:
        read(reader, 2)
        with pytest.raises(WrongMoment, match=r"producer\.transaction\(consumer\)"):
            reader.commit()
    with (
        consumer(numbers) as reader,
        pytest.raises(WrongMoment, match="delivery exactly-once, and this one has at-least"),
    ):
        reader.offsets_for_transaction()


def test_what_was_acknowledged_is_committed_when_partitions_move(numbers: LocalBroker) -> None:
    with consumer(numbers, auto_ack=False) as first:
        found = messages(first, 5)
        first.ack(*found[:3])
        first.close()
    with consumer(numbers) as second:
        assert read(second, 7) == [3, 4, 5, 6, 7, 8, 9]


# --- where to read ---


def test_seeking(numbers: LocalBroker) -> None:
    with consumer(numbers) as reader:
        reader.seek("numbers", 0, 7)
        assert read(reader, 3) == [7, 8, 9]
        reader.seek_to_start()
        assert read(reader, 2) == [0, 1]
        reader.seek_to_end()
        fill(numbers, "numbers", 2, first=10)
        assert read(reader, 2) == [10, 11]


def test_seeking_to_a_time(broker: LocalBroker) -> None:
    create_topic(broker, "numbers")
    now_ms = SystemClock().now_ms()
    with Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send("numbers", str(number), timestamp_ms=now_ms - 10_000 + number * 1000)
    with consumer(broker) as reader:
        reader.seek_to_time(now_ms - 10_000 + 6500)
        assert read(reader, 3) == [7, 8, 9]
        reader.seek_to_time(now_ms + 60_000)  # nothing is that young: the end
        fill(broker, "numbers", 1, first=10)
        assert read(reader, 1) == [10]


def test_the_place_sought_is_kept_by_a_commit(numbers: LocalBroker) -> None:
    with consumer(numbers) as reader:
        reader.seek("numbers", 0, 8)
        reader.commit()
    with consumer(numbers) as reader:
        assert read(reader, 2) == [8, 9]


def test_seeking_a_partition_of_somebody_else_is_told(numbers: LocalBroker) -> None:
    with consumer(numbers) as reader, pytest.raises(SdkError, match="numbers-5 is not assigned to this member"):
        reader.seek("numbers", 5, 0)


def test_a_paused_partition_hands_out_nothing_not_even_what_was_fetched(numbers: LocalBroker) -> None:
    with consumer(numbers) as reader:
        first = next(iter(reader))  # fetches ahead
        reader.pause()
        assert reader.poll(timeout_s=0.3) == []
        reader.resume()
        assert (first.offset, read(reader, 9)) == (0, list(range(1, 10)))


# --- limits ---


def test_no_more_are_handed_out_than_may_be_in_flight(numbers: LocalBroker) -> None:
    with consumer(numbers, auto_ack=False, in_flight_limit=4) as reader:
        found = messages(reader, 4)
        assert reader.poll(timeout_s=0.1) == []
        worker = Thread(target=reader.ack, args=found[:2])
        worker.start()
        assert read(reader, 2) == [4, 5]
        worker.join()


def test_iterating_waits_for_acknowledgements_at_the_limit(numbers: LocalBroker) -> None:
    with consumer(numbers, auto_ack=False, in_flight_limit=1) as reader:
        found = []
        for message in islice(reader, 10):
            found.append(message.offset)
            worker = Thread(target=reader.ack, args=(message,))
            worker.start()
    assert found == list(range(10))


class SteppingClock(SystemClock):
    """Every look at it is a hundredth of a second later, so that nothing has to wait for real."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        self._now_s += 0.01
        return self._now_s


def test_the_rate_limit_holds_on_the_consumers_clock(numbers: LocalBroker) -> None:
    clock = SteppingClock()
    with consumer(numbers, rate_limit=20, clock=clock) as reader:
        assert read(reader, 10) == list(range(10))
        assert clock.monotonic() >= (10 - 2) / 20  # a tenth of a second's worth may go at once


# --- mistakes ---


def test_a_topic_that_does_not_exist_is_told_with_the_command_that_makes_it(broker: LocalBroker) -> None:
    with pytest.raises(TopicMissing, match="create it with `headrace topic create numbers`"):
        consumer(broker).open()


def test_a_broker_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sdk.consumer.ANSWER_TIMEOUT_S", 0.2)
    with pytest.raises(Unreachable, match=r"asking 127\.0\.0\.1:1 about topic numbers.*is the broker running"):
        Consumer("127.0.0.1:1", "numbers", group="g").open()


def test_a_consumer_without_topics_is_refused() -> None:
    with pytest.raises(BadSetting, match="topics is empty"):
        Consumer("b:1", [], group="g")


def test_a_closed_consumer_says_so(numbers: LocalBroker) -> None:
    reader = consumer(numbers)
    reader.close()
    with pytest.raises(WrongMoment, match="closed"):
        reader.poll()
    assert list(reader) == []


def test_topics_can_be_a_pattern(numbers: LocalBroker) -> None:
    with Consumer(numbers.bootstrap, "^num.*", group="g") as reader:
        assert read(reader, 10) == list(range(10))
