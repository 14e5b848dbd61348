"""Random good histories are never accused; a random fault in one is found by the invariant that forbids it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.history.invariants import INVARIANTS, Limits
from sim.history.verdict import judge
from tests.conftest import SOAKING
from tests.sim.history import faults
from tests.sim.history.reference import Reference

SEEDS = st.integers(0, 2**32)
FAULTS: dict[str, Callable[[faults.Place], bool]] = {
    name: fault for name, fault in vars(faults).items() if re.match(r"[pgtd]\d+_", name)
}
HISTORIES_FOR_A_FAULT = 60
LIMITS = Limits(late_within_s=60)


@settings(max_examples=2000 if SOAKING else 60, deadline=None)
@given(seed=SEEDS, length=st.integers(4, 24))
def test_good_history_is_not_accused(seed: int, length: int) -> None:
    verdict = judge(Reference(seed).run(length), LIMITS)
    assert not verdict.violations, str(verdict)


@pytest.mark.parametrize("name", FAULTS)
@settings(max_examples=100 if SOAKING else 4, deadline=None)
@given(seed=SEEDS)
def test_fault_is_found_by_its_invariant(name: str, seed: int) -> None:
    """Not every history has room for every fault: the first that has it is taken."""
    for attempt in range(HISTORIES_FOR_A_FAULT):
        place = faults.Place(Reference(seed + attempt).run(16), random.Random(seed))
        if FAULTS[name](place):
            verdict = judge(place.events, LIMITS)
            assert name.partition("_")[0].upper() in verdict.broken, f"seed {seed + attempt}: {verdict}"
            return
    pytest.fail(f"no history from seed {seed} on has room for this fault")


def test_every_invariant_has_a_fault() -> None:
    assert {name.partition("_")[0].upper() for name in FAULTS} == set(INVARIANTS)
