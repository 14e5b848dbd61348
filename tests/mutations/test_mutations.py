"""Every rule of replication that is switched off is found: a scenario that passes fails without it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutations.byte_rules import BYTE_RULES
from tests.mutations.mutant import mutated
from tests.mutations.rules import CASES, RULES, Case

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mutations.md"
BLUNDERS = (NameError, SyntaxError, ImportError)  # of the mutation itself, not of the rule


def scenario(case: Case) -> Callable[[], object]:
    module, _, name = case.scenario.partition(":")
    function = getattr(importlib.import_module(module), name)
    return lambda: function(*case.arguments)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"rule-{case.rule}-{case.mutation.module}")
def test_a_rule_that_is_switched_off_is_found(case: Case) -> None:
    play = scenario(case)
    play()
    with mutated(case.mutation):
        try:
            play()
        except BLUNDERS:
            raise
        except BaseException as found:
            if isinstance(found, KeyboardInterrupt | SystemExit):
                raise
        else:
            pytest.fail(f"rule {case.rule} ({RULES[case.rule]}) is off, and {case.scenario} does not notice")
    play()


def test_every_rule_has_a_mutation_and_a_line_in_the_docs() -> None:
    assert {case.rule for case in CASES} == set(RULES) == {*range(1, 28), *range(47, 53)}
    told = dict(re.findall(r"^\| (\d+) \| ([^|]+?) \|", PAGE.read_text(), re.MULTILINE))
    assert {int(rule): words for rule, words in told.items()} == RULES | BYTE_RULES
