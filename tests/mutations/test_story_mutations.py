"""The simulation finds by itself what breaks when a rule of delayed messages is switched off.

Only rules whose breach clients can see belong here, and only those that a few stories hit: a note without its mate
takes a power cut between two sectors, and a release that is undecided shares the fate of what it releases.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SOAKING

ROOT = Path(__file__).resolve().parents[2]
FIRST, SEEDS = 95_000, 5
FOUND = {  # rule and place of its mutation: the invariants of which one must break
    (49, 0): {"D3", "T1"},
    (49, 1): {"D3", "T1"},
    (50, 1): {"D1"},
    (50, 2): {"D4"},
    (51, 0): {"D3"},
}
SHORT = [(49, 1)]


@pytest.mark.parametrize("case", FOUND if SOAKING else SHORT, ids=lambda case: f"rule-{case[0]}-{case[1]}")
def test_stories_notice_that_a_rule_is_off(case: tuple[int, int]) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.mutations.stories", *map(str, case), str(FIRST), str(SEEDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert any(f"{name} is broken" in told.stdout for name in FOUND[case]), told.stdout
