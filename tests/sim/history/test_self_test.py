"""The checker's own test: each synthetic history gets exactly the verdict that its name promises.

`good_...` breaks nothing; `p1_p7_...` breaks P1 and P7 and nothing else.
"""

from __future__ import annotations

import re

import pytest

from sim.history.invariants import INVARIANTS, Limits
from sim.history.verdict import judge
from tests.sim.history import tales_of_delays, tales_of_groups, tales_of_messages, tales_of_transactions
from tests.sim.history.story import Tale, told

TALES: dict[str, Tale] = {
    name: tale
    for module in (tales_of_messages, tales_of_groups, tales_of_transactions, tales_of_delays)
    for name, tale in vars(module).items()
    if re.match(r"good_|[pgtd]\d+_", name)
}

LIMITS = Limits(late_within_s=60)


def promised(name: str) -> set[str]:
    return {part.upper() for part in name.split("_") if re.fullmatch(r"[pgtd]\d+", part)}


@pytest.mark.parametrize("name", TALES)
def test_history_gets_exactly_its_verdict(name: str) -> None:
    verdict = judge(told(TALES[name]), LIMITS)
    assert verdict.broken == promised(name), str(verdict)


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_every_invariant_has_a_history_that_breaks_it_alone(invariant: str) -> None:
    assert any(promised(name) == {invariant} for name in TALES)


def test_there_are_enough_bad_histories() -> None:
    assert sum(bool(promised(name)) for name in TALES) >= 40
    assert sum(not promised(name) for name in TALES) >= 20


@pytest.mark.parametrize("name", [name for name in TALES if promised(name)])
def test_violation_names_its_events_and_says_a_sentence(name: str) -> None:
    events = told(TALES[name])
    numbers = {event.n for event in events}
    for violation in judge(events, LIMITS).violations:
        assert violation.events
        assert numbers >= set(violation.events)
        assert len(violation.sentence.split()) >= 5
