"""Attacks by hand: `python -m tests.hostile [--full] [--peer kafka] [ATTACK ...]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench import processes
from bench.peers import HeadraceRecipe, KafkaRecipe
from tests.hostile import trial
from tests.hostile.attacks import ATTACKS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("attack", nargs="*", help=f"of {', '.join(attack.name for attack in ATTACKS)}; without: all")
    parser.add_argument("--full", action="store_true", help="at full length")
    parser.add_argument("--peer", choices=("headrace", "kafka"), default="headrace")
    options = parser.parse_args()
    recipe = KafkaRecipe() if options.peer == "kafka" else HeadraceRecipe()
    with processes.Children() as children:
        recipe.prepare(children)
    for attack in ATTACKS:
        if options.attack and attack.name not in options.attack:
            continue
        amount, calm_s = (attack.full, trial.CALM_S) if options.full else (attack.short, trial.SHORT_CALM_S)
        with tempfile.TemporaryDirectory() as folder:
            outcome = trial.run(recipe, attack, amount, Path(folder) / "broker", calm_s=calm_s)
        sizes = [outcome.before_bytes, outcome.peak_bytes, outcome.after_bytes]
        print(
            f"{attack.name:20} memory {' -> '.join(f'{size / 1e6:.0f}' for size in sizes)} MB, longest wait "
            f"{outcome.longest_wait_s * 1000:.0f} ms, {outcome.errors} errors, {outcome.log_bytes} bytes of log, "
            f"{'alive' if outcome.alive else 'NO ANSWER'} {' | '.join(outcome.complaints[:2])}",
            flush=True,
        )


if __name__ == "__main__":
    main()
