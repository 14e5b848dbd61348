"""One hostile client takes a bounded amount of memory, and nobody else notices it.

Every attack on a broker process of its own, beside a canary: in a short form in every run of the tests, at full length
in `make soak PART=hostile`. `python -m tests.hostile --page` measures the same attacks on Apache Kafka and writes the
table of docs/robustness.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench import processes
from bench.peers import HeadraceRecipe
from tests.hostile import page, trial
from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.trial import Outcome, complaints

LOG_BYTES = 20_000
"""At most of the broker's log in one attack: some lines a minute, not one a frame."""
SOAK_WAIT_S = 1.0
"""The canary's longest wait when nothing else runs on the machine. Other tests run beside the short form, so that says
only whether the broker is still there."""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_hostile_client_takes_little_and_others_go_on(
    attack: Attack, tmp_path: Path, soaking: bool, remark: Callable[[str], None]
) -> None:
    recipe = HeadraceRecipe()
    with processes.Children() as children:
        recipe.prepare(children)
    amount, calm_s = (attack.full, trial.CALM_S) if soaking else (attack.short, trial.SHORT_CALM_S)
    outcome = trial.run(recipe, attack, amount, tmp_path / "broker", calm_s=calm_s)
    remark(f"{attack.name}: {outcome.words}")
    assert outcome.alive, "a new client got no answer afterwards"
    assert outcome.errors == 0, "the canary's requests failed"
    assert outcome.complaints == ()
    assert outcome.log_bytes <= LOG_BYTES
    assert outcome.peak_bytes - outcome.before_bytes <= attack.most_mb * 1_000_000
    if soaking:
        assert outcome.longest_wait_s < SOAK_WAIT_S


def test_the_log_is_searched_for_what_no_stranger_may_cause() -> None:
    lines = ["all is well", "Traceback (most recent call last):", "OSError: [Errno 24] Too many open files"]
    assert complaints(lines) == tuple(lines[1:])


def test_the_table_says_when_a_broker_was_down() -> None:
    down = Outcome(1_000_000, 2_000_000, 0, 3.5, 7, 10, alive=False, complaints=())
    row = page.render({ATTACKS[0]: {"headrace": down}}, "today", "here").splitlines()[-1]
    assert "1 → 2 → 0, **down**" in row
    assert "3,500 ms, 7 errors, **no answer**" in row
