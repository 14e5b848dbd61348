"""One member on its way to its part of the plan: what it keeps, lets go of, and waits for."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.groups.reconciliation import (
    CurrentAssignment,
    MemberState,
    Parts,
    next_step,
    parts_of,
)

T = uuid.uuid5(uuid.NAMESPACE_URL, "t")


def parts(*numbers: int) -> Parts:
    return {T: frozenset(numbers)} if numbers else {}


def having(*numbers: int, epoch: int = 3) -> CurrentAssignment:
    return CurrentAssignment(epoch, epoch - 1, MemberState.STABLE, {T: dict.fromkeys(numbers, epoch)}, {})


def all_free(topic_id: uuid.UUID, partition: int) -> bool:
    return True


def test_member_that_has_its_part_stays_as_it_is() -> None:
    assert next_step(having(1), 3, parts(1), None, all_free) == having(1)


def test_member_that_loses_nothing_gets_more_at_once() -> None:
    step = next_step(having(1), 4, parts(1, 2), None, all_free)
    assert (step.epoch, step.previous_epoch, step.state) == (4, 3, MemberState.STABLE)
    assert step.assigned == {T: {1: 3, 2: 4}}


def test_member_lets_go_first_and_keeps_the_rest_meanwhile() -> None:
    told = next_step(having(1, 2), 4, parts(2, 3), None, all_free)
    assert (told.epoch, told.state) == (3, MemberState.UNREVOKED)
    assert (parts_of(told.assigned), parts_of(told.revoking)) == (parts(2), parts(1))
    assert next_step(told, 4, parts(2, 3), parts(1, 2), all_free) == told
    assert next_step(told, 4, parts(2, 3), None, all_free) == told
    done = next_step(told, 4, parts(2, 3), parts(2), all_free)
    assert (done.epoch, done.state, done.assigned, done.revoking) == (4, MemberState.STABLE, {T: {2: 3, 3: 4}}, {})


def test_member_that_has_let_go_goes_on_to_the_newest_plan() -> None:
    told = next_step(having(1, 2), 4, parts(2), None, all_free)
    again = next_step(told, 6, parts(), parts(2), all_free)
    assert (again.epoch, again.state, parts_of(again.revoking)) == (4, MemberState.UNREVOKED, parts(2))
    assert next_step(again, 6, parts(), parts(), all_free).epoch == 6


def test_member_waits_for_what_others_still_have() -> None:
    taken = {2}

    def free(_: uuid.UUID, partition: int) -> bool:
        return partition not in taken

    waits = next_step(having(1), 4, parts(1, 2, 3), None, free)
    assert (waits.epoch, waits.state, parts_of(waits.assigned)) == (4, MemberState.UNRELEASED, parts(1, 3))
    taken.clear()
    done = next_step(waits, 4, parts(1, 2, 3), None, free)
    assert (done.epoch, done.state, parts_of(done.assigned)) == (4, MemberState.STABLE, parts(1, 2, 3))


numbers = st.frozensets(st.integers(0, 7))


@given(st.lists(numbers, min_size=1, max_size=5), st.integers(0, 2**8 - 1), numbers)
def test_member_never_has_what_is_not_free_and_gets_there_in_the_end(plans, taken_bits, start) -> None:
    taken = {number for number in range(8) if taken_bits >> number & 1} - start
    current = having(*start) if start else CurrentAssignment(3, 2)
    for epoch, plan in enumerate(plans, 4):
        current = next_step(current, epoch, parts(*plan), None, lambda _, number: number not in taken)
        assert not taken & parts_of(current.assigned).get(T, frozenset())
    for _ in range(len(plans) + 3):
        current = next_step(current, epoch, parts(*plan), parts_of(current.assigned), all_free)
    assert current.reached(epoch)
    assert parts_of(current.assigned) == parts(*plan)
