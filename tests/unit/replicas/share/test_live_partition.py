"""A share partition at its leader: acknowledgements are stored one write at a time, and what happens if that fails."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from headrace.model.group_config import ShareGroupConfig
from headrace.replicas.share.deliveries import ACCEPT, REJECT, RELEASE
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.replicas.share.leader import CONFIG, GROUP, NO_START, Leader, acknowledge, play, take


def failure(stored: asyncio.Future[None]) -> ErrorCode:
    error = stored.exception()
    assert isinstance(error, KafkaError)
    return error.code


def test_an_acknowledgement_is_answered_when_it_is_stored_and_not_before() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        assert take(live, "ann", 0, 9) == [(0, 9, 1)]
        leader.states.gate.clear()
        first = acknowledge(live, "ann", 0, 4, ACCEPT)
        await leader.settle()
        second, third = acknowledge(live, "ann", 5, 5, REJECT), acknowledge(live, "ann", 6, 6, RELEASE)
        await leader.settle()
        assert not any(stored.done() for stored in (first, second, third))
        assert take(live, "bob", 0, 9) == [], "acquired during a pending change"
        with pytest.raises(KafkaError):
            acknowledge(live, "ann", 0, 0, ACCEPT)
        leader.states.gate.set()
        await leader.settle()
        assert first.done()
        assert second.done()
        assert third.done()
        assert [state.start_offset for state in leader.states.writes] == [5, 6], "the later two went together"
        assert take(live, "bob", 0, 9) == [(6, 6, 2)]

    play(story)


def test_a_staged_record_does_not_time_out_and_others_do() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 3)
        leader.states.gate.clear()
        stored = acknowledge(live, "ann", 0, 1, ACCEPT)
        await leader.clock.sleep(20)
        assert take(live, "bob", 0, 3) == [(2, 3, 2)]
        leader.states.gate.set()
        await leader.settle()
        assert stored.done()
        assert stored.exception() is None
        assert leader.stored().start_offset == 2

    play(story)


def test_a_lock_that_was_renewed_or_given_up_does_not_end_with_the_old_timer() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 1)
        await leader.clock.sleep(10)
        assert await acknowledge(live, "ann", 0, 0, RELEASE) is None
        assert take(live, "bob", 0, 0) == [(0, 0, 2)]
        await leader.clock.sleep(10)  # the first lock would have run out by now
        assert await acknowledge(live, "bob", 0, 0, ACCEPT) is None
        assert take(live, "bob", 1, 1) == [(1, 1, 2)], "and that of its neighbour has"

    play(story)


@pytest.mark.parametrize("code", ["unknown_server_error", "not_coordinator"])
def test_a_failed_write_forgets_what_was_staged_and_nothing_else(code: str) -> None:
    refused(code)


def refused(code: str) -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 3)
        take(live, "bob", 4, 5)
        leader.states.refuses = [ErrorCode[code]] * 100
        stored = acknowledge(live, "ann", 0, 1, ACCEPT)
        await leader.clock.sleep(12)
        assert failure(stored) is ErrorCode.coordinator_not_available
        leader.states.refuses = []
        await leader.clock.sleep(2)
        assert live.closed is None
        assert take(live, "cid", 0, 9)[:1] == [(0, 1, 2)], "free again at once, without waiting for a lock"
        assert await acknowledge(live, "bob", 4, 5, ACCEPT) is None
        assert await acknowledge(live, "ann", 2, 3, ACCEPT) is None

    play(story)


def test_a_write_whose_answer_was_lost_counts() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 3)
        for first, last in ((1, 2), (0, 0)):  # the latter moves the start
            leader.states.loses = [ErrorCode.unknown_server_error]
            stored = acknowledge(live, "ann", first, last, ACCEPT)
            await leader.clock.sleep(1)
            assert failure(stored) is ErrorCode.coordinator_not_available
            assert take(live, "bob", 0, 3) == [], "what is stored as accepted is not handed out"
        leader.states.loses = [ErrorCode.coordinator_not_available]
        assert await acknowledge(live, "ann", 3, 3, ACCEPT) is None, "it was written once more"
        assert leader.stored().start_offset == 4

    play(story)


def test_a_short_outage_of_the_coordinator_is_waited_for() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 3)
        leader.states.refuses = [ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress]
        await acknowledge(live, "ann", 0, 3, ACCEPT)
        assert leader.stored().start_offset == 4

    play(story)


def test_a_leader_that_was_fenced_ends() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 3)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        live.waiters[waiter] = None
        await leader.states.read(live.key, 4)  # by the next leader
        stored = acknowledge(live, "ann", 0, 3, ACCEPT)
        await leader.settle()
        assert failure(stored) is ErrorCode.not_leader_or_follower
        assert waiter.done()
        assert live.closed is not None
        assert leader.stored().start_offset == 0

    play(story)


def test_a_reset_makes_the_leader_read_anew() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 3)
        await leader.states.initialize(live.key, 2, 20)
        stored = acknowledge(live, "ann", 0, 3, ACCEPT)
        await leader.settle()
        assert failure(stored) is ErrorCode.not_leader_or_follower
        again = await leader.open(20, 2)
        assert again is not live
        assert again.deliveries is not None
        assert again.deliveries.next_offset == 20

    play(story)


def test_the_end_of_the_leadership_ends_waiting_members_and_writes() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 3)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        live.waiters[waiter] = None
        leader.states.gate.clear()
        under_way = acknowledge(live, "ann", 0, 1, ACCEPT)
        await leader.settle()
        behind = acknowledge(live, "ann", 2, 2, ACCEPT)
        leader.partitions.on_leadership("orders", 0, False, 3)
        await leader.settle()
        assert waiter.done()
        assert failure(under_way) is failure(behind) is ErrorCode.not_leader_or_follower
        with pytest.raises(KafkaError):
            acknowledge(live, "ann", 3, 3, ACCEPT)
        assert leader.partitions.find(GROUP, live.key.topic_id, 0) is None

    play(story)


def test_retention_wins_over_a_late_write() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 5)
        leader.states.gate.clear()
        stored = acknowledge(live, "ann", 1, 4, RELEASE)
        await leader.settle()
        leader.led.log.start_offset = 3
        live.keep_up()
        leader.states.gate.set()
        await leader.settle()
        assert stored.exception() is None
        assert live.deliveries is not None
        assert live.deliveries.start_offset == 3
        assert leader.stored().start_offset == 3
        assert take(live, "bob", 3, 9)[:1] == [(3, 4, 2)]

    play(story)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CONFIG, 50),
        (replace(CONFIG, share_read_committed=True), 40),
        (replace(CONFIG, share_auto_offset_reset="earliest"), 7),
        (replace(CONFIG, share_auto_offset_reset="by_duration:PT1H"), 30),
    ],
)
def test_a_start_that_was_chosen_is_stored_before_anything_is_handed_out(
    config: ShareGroupConfig, expected: int
) -> None:
    chosen(config, expected)


def chosen(config: ShareGroupConfig, expected: int) -> None:
    async def story(leader: Leader) -> None:
        leader.config = config
        leader.led.log.start_offset = 7
        leader.states.gate.clear()
        live = await leader.open(NO_START)
        assert live.deliveries is None
        leader.states.gate.set()
        await leader.settle()
        assert live.deliveries is not None
        assert live.deliveries.start_offset == leader.stored().start_offset == expected

    play(story)


def play_chosen_start() -> None:
    chosen(CONFIG, 50)


def test_a_state_that_cannot_be_read_yet_is_waited_for() -> None:
    async def story(leader: Leader) -> None:
        leader.states.unreadable = ErrorCode.coordinator_load_in_progress
        live = await leader.open()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        live.waiters[waiter] = None
        await leader.clock.sleep(30)
        assert live.deliveries is None
        assert not waiter.done()
        leader.states.unreadable = None
        await leader.clock.sleep(2)
        assert live.deliveries is not None
        assert waiter.done()

    play(story)


def test_members_share_the_locks_and_the_last_one_has_them_all() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        assert take(live, "ann", 0, 9, most=10) == [(0, 9, 1)]
        assert live.has_room("bob")
        take(live, "ann", 10, 199)
        assert live.deliveries is not None
        assert live.deliveries.held_by("ann") == 50
        assert not live.has_room("ann")
        take(live, "bob", 60, 199)
        assert live.deliveries.held_by("bob") == 50
        live.leave("bob")
        take(live, "ann", 60, 199)
        assert live.deliveries.held_by("ann") == 100

    play(story)


def test_a_group_that_has_left_is_forgotten_when_nothing_is_in_flight() -> None:
    async def story(leader: Leader) -> None:
        live = await leader.open()
        take(live, "ann", 0, 3)
        leader.states.gate.clear()
        stored = acknowledge(live, "ann", 0, 0, ACCEPT)
        live.leave("ann")
        leader.partitions.group_left(GROUP)
        assert live.closed is None, "a write is under way"
        leader.states.gate.set()
        await stored
        await leader.settle()
        again = await leader.open(0, 2)
        assert again is not live
        leader.partitions.group_left(GROUP)
        assert again.closed is not None

    play(story)
