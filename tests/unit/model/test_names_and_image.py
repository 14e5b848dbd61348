"""Names of topics, and the image that shares what did not change."""

from __future__ import annotations

import uuid

import pytest

from headrace.model.image import ClusterImage, PartitionImage, TopicImage
from headrace.model.names import names_collide, topic_name_problem


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "...", "__consumer_offsets"])
def test_these_names_are_fine(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0"])
def test_these_names_are_not(name: str) -> None:
    assert topic_name_problem(name)


def test_names_that_metrics_cannot_tell_apart_collide() -> None:
    assert names_collide("a.b", "a_b")
    assert not names_collide("a.b", "a.b")
    assert not names_collide("a.b", "a.c")


def topic(name: str, number: int) -> TopicImage:
    return TopicImage(name, uuid.UUID(int=number), (PartitionImage(0, (1,), (1,), 1, 0, 0, (0,)),), {})


def test_an_image_never_changes_and_its_successors_know_both_keys() -> None:
    empty = ClusterImage("c", 1)
    one = empty.with_topics([topic("a", 1)])
    again = one.with_topics([topic("a", 2), topic("b", 3)])
    gone = again.without_topic("a")
    assert [len(image.topics) for image in (empty, one, again, gone)] == [0, 1, 2, 1]
    assert [image.version for image in (empty, one, again, gone)] == [0, 1, 2, 3]
    assert set(again.topics_by_id) == {uuid.UUID(int=2), uuid.UUID(int=3)}
    assert set(gone.topics_by_id) == {uuid.UUID(int=3)}
    assert one.partition("a", 0) is not None
    assert one.partition("a", 1) is None
    assert one.partition("a", -1) is None
    assert one.partition("b", 0) is None
