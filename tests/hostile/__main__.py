"""Attacks by hand: `python -m tests.hostile [--full] [--peer kafka] [ATTACK ...]`.

With `--page`: all of them at full length, on headrace and on Apache Kafka, for the table of docs/robustness.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench import processes
from bench.peers import HeadraceRecipe, KafkaRecipe, Recipe
from tests.hostile import page, trial
from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.trial import Outcome


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("attack", nargs="*", help=f"of {', '.join(attack.name for attack in ATTACKS)}; without: all")
    parser.add_argument("--full", action="store_true", help="at full length")
    parser.add_argument("--peer", choices=("headrace", "kafka"), default="headrace")
    parser.add_argument("--page", action="store_true", help="write docs/robustness.md's table")
    options = parser.parse_args()
    headrace, kafka = HeadraceRecipe(), KafkaRecipe()
    if options.page:
        write_page([headrace, kafka])
        return
    wanted = [attack for attack in ATTACKS if not options.attack or attack.name in options.attack]
    for attack in wanted:
        _attacked(kafka if options.peer == "kafka" else headrace, attack, full=options.full)


def write_page(recipes: Iterable[Recipe]) -> None:
    results = {attack: {recipe.name: _attacked(recipe, attack, full=True) for recipe in recipes} for attack in ATTACKS}
    page.write(results, str(datetime.date.today()), f"{os.cpu_count()} cores")


def _attacked(recipe: Recipe, attack: Attack, *, full: bool) -> Outcome:
    with processes.Children() as children:
        recipe.prepare(children)
    amount, calm_s = (attack.full, trial.CALM_S) if full else (attack.short, trial.SHORT_CALM_S)
    with tempfile.TemporaryDirectory() as folder:
        outcome = trial.run(recipe, attack, amount, Path(folder) / "broker", calm_s=calm_s)
    print(f"{attack.name:20} {recipe.name}: {outcome.words} {' | '.join(outcome.complaints[:2])}", flush=True)
    return outcome


if __name__ == "__main__":
    main()
