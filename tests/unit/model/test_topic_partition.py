"""A partition's name is a plain tuple to whoever stores or compares it."""

from __future__ import annotations

from headrace.model.topic_partition import TopicPartition


def test_it_equals_and_hashes_as_the_pair_that_it_is() -> None:
    place = TopicPartition("orders", 3)
    assert place == ("orders", 3)
    assert {place: 1}[("orders", 3)] == 1  # type: ignore[index]
    assert sorted([place, TopicPartition("a", 9), TopicPartition("orders", 1)])[-1] is place
    topic, partition = place
    assert (topic, partition) == (place.topic, place.partition)


def test_people_read_it_as_kafka_writes_it() -> None:
    assert str(TopicPartition("orders", 3)) == f"{TopicPartition('orders', 3)}" == "orders-3"
