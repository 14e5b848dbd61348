"""The budget of replies that are not sent yet: never more than it says, nothing lost, and who reads is served."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.api import _granted_py as python
from headrace.api.reply_budget import SMALL_BYTES, Grant, ReplyBudget
from sim import loop as sim_loop

try:
    from headrace.api import _granted as compiled
except ImportError:
    TWINS: list[ModuleType] = [python]
else:
    TWINS = [python, compiled]

MIB = 1 << 20
LIMIT = 10 * MIB


def run(story: Callable[[ReplyBudget], Coroutine[Any, Any, None]]) -> None:
    sim_loop.run(story(ReplyBudget(LIMIT)), 1)


# --- bytes that keep a grant -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
@pytest.mark.parametrize(
    "data", [b"records", bytearray(b"records"), memoryview(b"records")], ids=["bytes", "bytearray", "view"]
)
def test_bytes_keep_their_grant_until_the_last_slice_of_them_is_gone(twin: ModuleType, data: Any) -> None:
    budget = ReplyBudget(LIMIT)
    kept = twin.granted(data, budget.take(7, "me"))
    assert (bytes(kept), len(kept), kept.readonly, budget.held_bytes) == (b"records", 7, True, 7)
    part = memoryview(kept)[2:4]
    del kept
    assert (bytes(part), budget.held_bytes) == (b"co", 7)
    del part
    assert budget.held_bytes == 0


def test_a_grant_that_another_thread_frees_comes_back() -> None:
    async def story(budget: ReplyBudget) -> None:
        grants = [budget.take(LIMIT, "other")]
        waiting = asyncio.ensure_future(budget.wait(MIB, "other"))
        await asyncio.sleep(0)
        thread = threading.Thread(target=grants.clear)
        thread.start()
        thread.join()
        assert (await waiting).size == MIB

    run(story)


# --- who gets what ---------------------------------------------------------------------------------------------------


def test_who_holds_nothing_gets_a_small_reply_however_full_it_is() -> None:
    async def story(budget: ReplyBudget) -> None:
        hog = budget.take(LIMIT, "hog")
        waiting = asyncio.ensure_future(budget.wait(MIB, "hog"))
        await asyncio.sleep(0)
        first = budget.take(SMALL_BYTES, "canary")
        assert first is not None
        assert budget.take(1, "canary") is None, "what it was sent before comes first"
        assert budget.take(SMALL_BYTES + 1, "other") is None
        del first
        assert budget.take(SMALL_BYTES, "canary") is not None
        waiting.cancel()
        del hog

    run(story)


def test_a_reply_that_is_larger_than_the_budget_goes_alone() -> None:
    budget = ReplyBudget(LIMIT)
    alone = budget.take(LIMIT + 1, "large")
    assert alone is not None
    assert budget.take(SMALL_BYTES + 1, "other") is None
    del alone
    other = budget.take(1, "other")
    assert budget.take(LIMIT, "large") is None
    del other


def test_those_who_wait_have_their_turn_one_after_the_other() -> None:
    async def story(budget: ReplyBudget) -> None:
        held = budget.take(LIMIT, "first")
        order: list[str] = []

        async def wait(holder: str, size: int) -> None:
            grant = await budget.wait(size, holder)
            order.append(holder)
            await asyncio.sleep(1)
            del grant

        asked = [("a", 6 * MIB), ("a", 6 * MIB), ("b", 6 * MIB), ("a", MIB), ("c", 9 * MIB), ("b", MIB)]
        waiting = [asyncio.ensure_future(wait(*one)) for one in asked]
        await asyncio.sleep(0)
        assert budget.waiting == len(asked)
        assert budget.take(SMALL_BYTES + 1, "late") is None
        del held
        assert budget.crowded()
        assert budget.take(SMALL_BYTES + 1, "late") is None, "others came before"
        await asyncio.gather(*waiting)
        assert order == ["a", "b", "c", "a", "b", "a"]
        assert (budget.held_bytes, budget.waiting, budget.crowded()) == (0, 0, False)

    run(story)


def test_one_who_waits_for_little_goes_on_as_soon_as_he_holds_nothing() -> None:
    async def story(budget: ReplyBudget) -> None:
        mine, hog = budget.take(MIB, "me"), budget.take(LIMIT - MIB, "hog", least=True)
        first = asyncio.ensure_future(budget.wait(5 * MIB, "hog"))
        waiting = asyncio.ensure_future(budget.wait(SMALL_BYTES, "me"))
        await asyncio.sleep(0)
        del mine
        assert (await waiting).size == SMALL_BYTES
        first.cancel()
        del hog

    run(story)


def test_who_holds_nothing_goes_before_those_who_hold_something() -> None:
    async def story(budget: ReplyBudget) -> None:
        hog, other = budget.take(8 * MIB, "hog"), budget.take(2 * MIB, "other", least=True)
        first = asyncio.ensure_future(budget.wait(MIB, "hog"))
        await asyncio.sleep(0)
        reader = asyncio.ensure_future(budget.wait(MIB, "reader"))
        await asyncio.sleep(0)
        del other
        assert (await reader).size == MIB
        assert not first.done()
        first.cancel()
        del hog

    run(story)


def test_one_who_leaves_stands_in_nobodys_way() -> None:
    async def story(budget: ReplyBudget) -> None:
        half = [budget.take(MIB, "modest"), budget.take(LIMIT // 2, "hog")]
        large = asyncio.ensure_future(budget.wait(LIMIT, "large"))
        await asyncio.sleep(0)
        modest = asyncio.ensure_future(budget.wait(MIB, "modest"))
        await asyncio.sleep(0)
        assert not modest.done()
        large.cancel()
        assert (await modest).size == MIB
        del half

    run(story)


def test_a_grant_for_one_who_has_just_left_is_not_lost() -> None:
    async def story(budget: ReplyBudget) -> None:
        held = budget.take(LIMIT, "hog")
        waiting = asyncio.ensure_future(budget.wait(LIMIT, "gone"))
        await asyncio.sleep(0)
        del held
        assert budget.held_bytes == LIMIT, "it has been given to the one who waits"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        del waiting
        gc.collect()
        assert budget.held_bytes == 0

    run(story)


def test_it_is_crowded_from_the_first_refusal_until_it_is_half_empty() -> None:
    budget = ReplyBudget(LIMIT)
    parts = [budget.take(LIMIT // 5, number) for number in range(4)]
    assert not budget.crowded()
    assert budget.take(MIB, "late") is None
    parts.pop()
    assert budget.crowded()
    parts.pop()
    assert not budget.crowded()
    assert (budget.held_by(0), budget.held_by(3)) == (LIMIT // 5, 0)


def test_a_fifth_is_for_one_batch_of_those_who_hold_nothing() -> None:
    budget = ReplyBudget(LIMIT)
    hog = budget.take(8 * MIB, "hog")
    assert budget.take(MIB, "reader") is None, "as many as it would like"
    assert budget.take(MIB, "hog", least=True) is None
    batch = budget.take(MIB, "reader", least=True)
    assert batch is not None
    assert budget.take(MIB + 1, "other", least=True) is None
    assert budget.held_bytes == 9 * MIB
    del hog


# --- whatever happens ------------------------------------------------------------------------------------------------

HOLDERS = "abc"
sizes = st.sampled_from([1, SMALL_BYTES, SMALL_BYTES + 1, MIB, LIMIT // 2, LIMIT, LIMIT + 1])


class BudgetMachine(RuleBasedStateMachine):
    """Many who take, wait, leave and give back, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.budget = ReplyBudget(LIMIT)
        self.grants: list[Grant] = []
        self.waiting: list[asyncio.Task[None]] = []

    def teardown(self) -> None:
        for task in self.waiting:
            task.cancel()
        self._settle()
        self.loop.close()

    def _settle(self) -> None:
        for _ in range(4):
            self.loop.run_until_complete(asyncio.sleep(0))
        self.waiting = [task for task in self.waiting if not task.done()]

    async def _wait(self, size: int, holder: str) -> None:
        self.grants.append(await self.budget.wait(size, holder))

    @rule(size=sizes, holder=st.sampled_from(HOLDERS), least=st.booleans())
    def take(self, size: int, holder: str, least: bool) -> None:
        grant = self.budget.take(size, holder, least=least)
        if grant is not None:
            self.grants.append(grant)
        else:
            assert size > SMALL_BYTES or self.budget.held_by(holder), "a small reply is owed to who holds nothing"

    @rule(size=sizes, holder=st.sampled_from(HOLDERS))
    def wait(self, size: int, holder: str) -> None:
        self.waiting.append(self.loop.create_task(self._wait(size, holder)))
        self._settle()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.waiting[data.draw(st.integers(0, len(self.waiting) - 1))].cancel()
        self._settle()

    @precondition(lambda self: self.grants)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        del self.grants[data.draw(st.integers(0, len(self.grants) - 1))]
        self._settle()

    @invariant()
    def the_sums_are_right(self) -> None:
        assert self.budget.held_bytes == sum(grant.size for grant in self.grants)
        assert self.budget.waiting == len(self.waiting)

    @invariant()
    def it_is_never_overdrawn_but_for_small_replies(self) -> None:
        held = self.budget.held_bytes
        largest = max((grant.size for grant in self.grants), default=0)
        assert held <= max(LIMIT, largest) + len(HOLDERS) * SMALL_BYTES

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        assert not self.waiting or self.grants


TestBudgetMachine = BudgetMachine.TestCase
TestBudgetMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
