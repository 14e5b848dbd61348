"""The consumer's book: nothing becomes committable before everything below it is done, and limits hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sdk.errors import BadSetting
from headrace.sdk.ledger import Ledger
from headrace.sdk.message import Message
from headrace.sdk.pace import Pace


def messages(*offsets: int, partition: int = 0) -> list[Message]:
    return [Message("t", partition, offset, b"") for offset in offsets]


def handed_out(ledger: Ledger, *offsets: int, partition: int = 0) -> list[Message]:
    ledger.fetched(messages(*offsets, partition=partition))
    return ledger.take(len(offsets), 0.0)


@given(st.permutations(range(8)), st.integers(0, 8))
def test_an_offset_is_committable_when_all_below_it_are_acknowledged(order: list[int], count: int) -> None:
    ledger = Ledger(auto_ack=False)
    taken = handed_out(ledger, *range(8))
    done = order[:count]
    for offset in done:
        ledger.acknowledge([taken[offset]])
    first_open = next((offset for offset in range(8) if offset not in done), 8)
    assert ledger.progress() == {("t", 0): first_open}
    assert ledger.in_flight == 8 - count


def test_offsets_may_have_gaps() -> None:
    ledger = Ledger(auto_ack=False)
    taken = handed_out(ledger, 5, 9, 30)
    ledger.acknowledge(taken[:2])
    assert ledger.committable() == {("t", 0): 30}
    ledger.acknowledge(taken[2:])
    assert ledger.committable() == {("t", 0): 31}


def test_acknowledging_twice_counts_once() -> None:
    ledger = Ledger(auto_ack=False)
    taken = handed_out(ledger, 0, 1, 2)
    ledger.acknowledge([taken[1], taken[1]])
    ledger.acknowledge([taken[0], taken[0]])
    assert (ledger.in_flight, ledger.committable()) == (1, {("t", 0): 2})


def test_asking_for_more_acknowledges_only_when_that_was_agreed() -> None:
    for auto_ack in (True, False):
        ledger = Ledger(auto_ack)
        handed_out(ledger, 0, 1)
        ledger.asked_for_more()
        assert ledger.in_flight == (0 if auto_ack else 2)


def test_what_was_fetched_but_not_handed_out_is_never_committable() -> None:
    ledger = Ledger(auto_ack=True)
    ledger.fetched(messages(0, 1, 2))
    ledger.take(1, 0.0)
    ledger.asked_for_more()
    assert ledger.committable() == {("t", 0): 1}


def test_settled_offsets_are_not_told_again() -> None:
    ledger = Ledger(auto_ack=True)
    handed_out(ledger, 0, 1)
    ledger.asked_for_more()
    ledger.settle(ledger.committable())
    assert ledger.committable() == {}
    assert ledger.progress() == {("t", 0): 2}


def test_a_partition_that_left_takes_everything_along() -> None:
    ledger = Ledger(auto_ack=False)
    taken = handed_out(ledger, 0, 1)
    others = handed_out(ledger, 7, partition=1)
    ledger.fetched(messages(2))
    ledger.forget([("t", 0)])
    ledger.acknowledge([*taken, *others])  # too late for the first partition
    assert (ledger.in_flight, ledger.has_fetched, ledger.committable()) == (0, False, {("t", 1): 8})


def test_a_late_acknowledgement_does_not_touch_the_partition_that_came_back() -> None:
    ledger = Ledger(auto_ack=False)
    old = handed_out(ledger, 3, 4)
    ledger.forget([("t", 0)])
    handed_out(ledger, 10, 11)
    ledger.acknowledge(old)
    assert (ledger.in_flight, ledger.committable()) == (2, {})


def test_after_an_abort_everything_unsettled_is_read_again() -> None:
    ledger = Ledger(auto_ack=True)
    handed_out(ledger, 0, 1, 2)
    ledger.asked_for_more()
    ledger.settle(ledger.committable())
    handed_out(ledger, 3, 4)
    ledger.fetched(messages(5))
    ledger.fetched(messages(80, 81, partition=1))
    ledger.asked_for_more()
    assert ledger.has_unsettled([("t", 0)])
    assert not ledger.has_unsettled([("t", 1)])
    assert ledger.restart_points() == {("t", 0): 3, ("t", 1): 80}


def test_a_position_that_was_chosen_is_worth_a_commit_even_backwards() -> None:
    ledger = Ledger(auto_ack=True)
    handed_out(ledger, 10, 11)
    ledger.move({("t", 0): 4})
    assert ledger.committable() == {("t", 0): 4}
    ledger.settle({("t", 0): 4})
    assert ledger.committable() == {}
    handed_out(ledger, 4)
    ledger.asked_for_more()
    assert ledger.committable() == {("t", 0): 5}


def test_paused_partitions_keep_what_they_have_until_they_go_on() -> None:
    ledger = Ledger(auto_ack=True)
    ledger.fetched([*messages(0, 1), *messages(0, partition=1)])
    ledger.hold([("t", 0)])
    ledger.fetched(messages(2))
    assert [each.partition for each in ledger.take(10, 0.0)] == [1]
    ledger.release([("t", 0)])
    assert [each.offset for each in ledger.take(10, 0.0)] == [0, 1, 2]


def test_no_more_messages_are_in_flight_than_the_limit_allows() -> None:
    ledger = Ledger(auto_ack=False, in_flight_limit=3)
    ledger.fetched(messages(*range(10)))
    taken = ledger.take(10, 0.0)
    assert (len(taken), ledger.room(0.0)) == (3, 0)
    assert ledger.take(10, 0.0) == []
    ledger.acknowledge([taken[2]])
    assert [each.offset for each in ledger.take(10, 0.0)] == [3]


@given(st.lists(st.floats(0.0, 0.5), max_size=20), st.floats(1.0, 150.0))
def test_the_rate_is_kept_over_every_stretch_of_time(steps: list[float], rate: float) -> None:
    ledger = Ledger(auto_ack=True, pace=Pace(rate))
    ledger.fetched(messages(*range(2_000)))
    burst = max(1.0, rate / 10)
    now_s, taken = 0.0, 0
    for step in steps:
        now_s += step
        taken += len(ledger.take(2_000, now_s))
        assert taken <= rate * now_s + burst + 1e-6


def test_a_limited_consumer_is_told_how_long_to_wait() -> None:
    pace = Pace(2.0)
    pace.spend(1, 0.0)
    assert pace.wait_s(0.0) == pytest.approx(0.5)
    assert pace.permits(0.5) == 1


def test_limits_that_let_nothing_through_are_refused() -> None:
    with pytest.raises(BadSetting, match="in_flight_limit=0"):
        Ledger(auto_ack=True, in_flight_limit=0)
    with pytest.raises(BadSetting, match="rate_limit=0"):
        Pace(0)
