"""The budget of unfinished requests is kept, nobody starves, and those that wait for each other do not block."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.server.unfinished import UnfinishedRequests


class Owner:
    """Sends requests of `need` bytes, in steps."""

    def __init__(self, budget: UnfinishedRequests, need: int) -> None:
        self.budget = budget
        self.need = need
        self.here = 0
        self.until = 0
        self.waits = False

    def room_granted(self) -> None:
        self.waits = False

    def step(self) -> None:
        if self.waits or self.here == self.need:
            return
        self.here = self.until
        if self.here == self.need:
            self.budget.release(self)
            return
        self.until = min(self.need, self.here + 3)
        self.waits = not self.budget.grant(self, self.here, self.until)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.lists(st.integers(0, 7), max_size=60))
def test_the_budget_is_kept_and_all_are_served(needs: list[int], turns: list[int]) -> None:
    told: list[bool] = []
    budget = UnfinishedRequests(20, told.append)
    owners = [Owner(budget, need) for need in needs]
    for turn in turns:
        owners[turn % len(owners)].step()
        assert budget.held_bytes == sum(hold.size for hold in budget.holds.values()) <= 20 + 20
        assert budget.full == any(owner.waits for owner in owners) or budget.held_bytes > 20
        assert (told[-1] if told else False) == budget.full
    for _ in range(200):
        for owner in owners:
            owner.step()
    assert all(owner.here == owner.need for owner in owners), "nobody waits for ever"
    assert (budget.holds, budget.held_bytes, budget.full) == ({}, 0, False)


def test_the_oldest_goes_on_though_the_others_hold_all() -> None:
    budget = UnfinishedRequests(10)
    first, second = Owner(budget, 20), Owner(budget, 20)
    assert budget.grant(first, 0, 5)
    assert budget.grant(second, 0, 5)
    assert not budget.grant(second, 5, 6)
    assert budget.grant(first, 5, 20)


def test_what_was_read_already_is_counted_and_never_refused() -> None:
    budget = UnfinishedRequests(10)
    read, other = Owner(budget, 0), Owner(budget, 0)
    budget.keep(read, 11)
    assert budget.full
    assert budget.grant(other, 0, 5), "it is the oldest that can go on at all"
    budget.release(read)
    assert not budget.full
    assert budget.held_bytes == 5


def test_a_younger_one_waits_behind_an_older_one() -> None:
    budget = UnfinishedRequests(10)
    oldest, older, younger = Owner(budget, 10), Owner(budget, 10), Owner(budget, 10)
    assert budget.grant(oldest, 0, 9)
    for owner, until in ((older, 8), (younger, 2)):
        owner.waits = not budget.grant(owner, 0, until)
    budget.release(oldest)
    assert (older.waits, younger.waits) == (False, False)
    assert budget.held_bytes == 10
