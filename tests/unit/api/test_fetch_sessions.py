"""Fetch sessions: what a client named once stays named, and a lost reply is noticed."""

from __future__ import annotations

import uuid

import pytest

from headrace.api.fetch_sessions import MOST_UNKNOWN, FetchPlan, FetchSessions, WantedPartition
from headrace.api.pieces import PIECE
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.entropy import SeededEntropy


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Sessions(FetchSessions):
    def planned(self, body: Message, version: int) -> FetchPlan[WantedPartition]:
        """All pieces at once."""
        steps = self.plan(body, version)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                plan: FetchPlan[WantedPartition] = done.value
                return plan


def sessions(slots: int = 10, partitions: int = 100) -> tuple[Sessions, Clock]:
    clock = Clock()
    return Sessions(clock, SeededEntropy(1), slots, partitions), clock  # type: ignore[arg-type]


def asks(
    session_id: int, epoch: int, *partitions: tuple[str, int, int], forget: tuple[tuple[str, int], ...] = ()
) -> Message:
    return Message(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            Message(
                topic=topic,
                topic_id=None,
                partitions=[
                    Message(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=100,
                        current_leader_epoch=-1,
                        last_fetched_epoch=-1,
                    )
                ],
            )
            for topic, index, offset in partitions
        ],
        forgotten_topics_data=[Message(topic=topic, topic_id=None, partitions=[index]) for topic, index in forget],
    )


def offsets(plan: FetchPlan[WantedPartition]) -> dict[tuple[str, int], int]:
    return {(wanted.topic, wanted.index): wanted.offset for wanted in plan.wanted}


def test_no_session_is_made_when_none_is_asked_for() -> None:
    cache, _ = sessions()
    plan = cache.planned(asks(0, -1, ("a", 0, 5)), 12)
    assert (plan.session_id, offsets(plan), len(cache)) == (0, {("a", 0): 5}, 0)


def test_a_session_remembers_updates_and_forgets() -> None:
    cache, _ = sessions()
    opened = cache.planned(asks(0, 0, ("a", 0, 5), ("b", 1, 7)), 12)
    assert opened.session_id > 0
    assert not opened.incremental
    second = cache.planned(asks(opened.session_id, 1, ("a", 0, 9)), 12)
    assert second.incremental
    assert offsets(second) == {("a", 0): 9, ("b", 1): 7}
    third = cache.planned(asks(opened.session_id, 2, ("c", 0, 1), forget=(("b", 1),)), 12)
    assert offsets(third) == {("a", 0): 9, ("c", 0): 1}


def refused(cache: Sessions, body: Message, version: int = 12) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        cache.planned(body, version)
    return caught.value.code


def test_unknown_sessions_and_wrong_epochs_are_told_apart() -> None:
    cache, _ = sessions()
    session = cache.planned(asks(0, 0, ("a", 0, 5)), 12).session_id
    assert refused(cache, asks(session + 1, 1)) is ErrorCode.fetch_session_id_not_found
    assert refused(cache, asks(0, -2, ("a", 0, 5))) is ErrorCode.fetch_session_id_not_found
    assert refused(cache, asks(session, 2)) is ErrorCode.invalid_fetch_session_epoch
    assert refused(cache, asks(session, 2), version=13) is ErrorCode.invalid_fetch_session_epoch
    assert refused(cache, asks(session, 1), version=13) is ErrorCode.fetch_session_topic_id_error
    assert offsets(cache.planned(asks(session, 1), 12)) == {("a", 0): 5}


def test_closing_a_session_frees_its_place() -> None:
    cache, _ = sessions()
    session = cache.planned(asks(0, 0, ("a", 0, 5)), 12).session_id
    cache.planned(asks(session, -1, ("a", 0, 5)), 12)
    assert len(cache) == 0
    assert refused(cache, asks(session, 1)) is ErrorCode.fetch_session_id_not_found


def test_a_session_without_partitions_ends_and_its_client_hears_of_it() -> None:
    cache, _ = sessions()
    session = cache.planned(asks(0, 0, ("a", 0, 5)), 12).session_id
    over = cache.planned(asks(session, 1, forget=(("a", 0),)), 12)
    assert (over.session_id, over.incremental, list(over.wanted), len(cache)) == (0, False, [], 0)


def test_a_full_store_serves_without_a_session_until_one_has_been_idle_for_long() -> None:
    cache, clock = sessions(slots=1)
    first = cache.planned(asks(0, 0, ("a", 0, 5)), 12).session_id
    assert cache.planned(asks(0, 0, ("b", 0, 5)), 12).session_id == 0
    clock.now = 121.0
    assert cache.planned(asks(0, 0, ("b", 0, 5)), 12).session_id > 0
    assert refused(cache, asks(first, 1)) is ErrorCode.fetch_session_id_not_found


def test_a_partition_that_gave_records_goes_to_the_end_of_the_line() -> None:
    cache, _ = sessions()
    plan = cache.planned(asks(0, 0, ("a", 0, 5), ("b", 0, 5)), 12)
    assert plan.session is not None
    plan.session.served(plan.wanted[0])
    assert [wanted.topic for wanted in cache.planned(asks(plan.session_id, 1), 12).wanted] == ["b", "a"]


def test_topics_are_told_apart_by_id_from_version_13_on() -> None:
    cache, _ = sessions()
    body = asks(0, 0, ("", 0, 5), ("", 0, 6))
    body.topics[0].topic_id, body.topics[1].topic_id = uuid.UUID(int=1), uuid.UUID(int=2)
    session = cache.planned(body, 13).session
    assert session is not None
    assert len(session.wanted) == 2


def names(count: int, topic: str = "a") -> tuple[tuple[str, int, int], ...]:
    return tuple((topic, index, 0) for index in range(count))


def test_of_a_partition_that_is_named_twice_the_last_one_counts() -> None:
    cache, _ = sessions()
    plan = cache.planned(asks(0, 0, ("a", 0, 5), ("b", 0, 6), ("a", 0, 7)), 12)
    assert [(wanted.topic, wanted.offset) for wanted in plan.wanted] == [("a", 7), ("b", 6)]
    assert cache.partitions == 2


def test_partitions_are_bounded_over_all_sessions() -> None:
    cache, clock = sessions(partitions=10)
    first = cache.planned(asks(0, 0, *names(6)), 12).session_id
    assert first > 0
    clock.now = 60.0
    second = cache.planned(asks(0, 0, *names(5)), 12)
    assert (second.session_id, len(second.wanted)) == (0, 5), "it is answered, and names them again next time"
    assert cache.planned(asks(0, 0, *names(4)), 12).session_id > 0
    clock.now = 121.0
    assert cache.planned(asks(0, 0, *names(6)), 12).session_id > 0, "the first one has been idle for long"
    assert refused(cache, asks(first, 1)) is ErrorCode.fetch_session_id_not_found
    assert cache.partitions == 10


def test_a_request_that_could_never_have_a_session_drops_nobody_elses() -> None:
    cache, clock = sessions(partitions=10)
    cache.planned(asks(0, 0, *names(10)), 12)
    clock.now = 500.0
    assert cache.planned(asks(0, 0, *names(11)), 12).session_id == 0
    assert len(cache) == 1


def test_a_session_that_grows_beyond_the_room_ends_and_its_client_starts_over() -> None:
    cache, _ = sessions(partitions=10)
    session = cache.planned(asks(0, 0, *names(9)), 12).session_id
    assert cache.planned(asks(session, 1, ("b", 0, 0)), 12).session_id == session
    assert refused(cache, asks(session, 2, *names(3, "c"))) is ErrorCode.fetch_session_id_not_found
    assert (len(cache), cache.partitions) == (0, 0)
    assert refused(cache, asks(session, 3)) is ErrorCode.fetch_session_id_not_found
    full = cache.planned(asks(0, 0, *names(13)), 12)
    assert (full.session_id, len(full.wanted)) == (0, 13)


def test_a_session_with_too_many_unknown_partitions_ends() -> None:
    cache, _ = sessions()
    plan = cache.planned(asks(0, 0, *names(3)), 12)
    cache.found_unknown(plan, MOST_UNKNOWN)
    assert plan.session_id > 0
    cache.found_unknown(plan, MOST_UNKNOWN + 1)
    assert (plan.session_id, len(cache)) == (0, 0)


def test_planning_goes_in_pieces() -> None:
    cache, _ = sessions(partitions=10 * PIECE)
    steps = cache.plan(asks(0, 0, *names(3 * PIECE)), 12)
    assert sum(1 for _ in steps) == 3
    session = next(iter(cache._sessions.values()))
    steps = cache.plan(asks(session.id, 1, forget=tuple(("a", index) for index in range(2 * PIECE))), 12)
    assert sum(1 for _ in steps) == 2
    assert cache.partitions == PIECE
