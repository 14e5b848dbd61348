"""Every rule of share groups that is switched off is found: a scenario that passes fails without it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutations.mutant import mutated
from tests.mutations.share_rules import SHARE_CASES, SHARE_RULES, ShareCase

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mutations.md"
BLUNDERS = (NameError, SyntaxError, ImportError)  # of the mutation itself, not of the rule


def scenario(case: ShareCase) -> Callable[[], object]:
    module, _, name = case.scenario.partition(":")
    function = getattr(importlib.import_module(module), name)
    return lambda: function(*case.arguments)


@pytest.mark.parametrize("case", SHARE_CASES, ids=lambda case: f"{case.rule}-{case.mutation.module}")
def test_a_rule_that_is_switched_off_is_found(case: ShareCase) -> None:
    play = scenario(case)
    play()
    with mutated(case.mutation), pytest.raises((Exception, pytest.fail.Exception)) as found:
        play()
    assert not isinstance(found.value, BLUNDERS)


def test_every_rule_has_a_mutation_and_a_line_in_the_docs() -> None:
    assert {case.rule for case in SHARE_CASES} == set(SHARE_RULES)
    told = dict(re.findall(r"^\| (S\d+) \| ([^|]+?) \|", PAGE.read_text(), re.MULTILINE))
    assert told == SHARE_RULES
