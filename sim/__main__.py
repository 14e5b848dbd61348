"""`python -m sim`: runs the stories of many seeds on all cores, or one seed in full. Exits with 1 if a story fails.

    python -m sim --seeds 200             seeds 0 to 199, two at a time; every hundredth is run twice and compared
    python -m sim --seed 17               one story, with its verdict
    python -m sim --seeds 300 --delays    delayed messages in every story
    python -m sim --seed 17 --history F   also writes what its clients saw, for `python -m sim.history F`

Hashes of strings must not differ between runs, so the program restarts itself with a fixed hash seed if necessary.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from sim import teller
from sim.story import Plot, tell

EVERY = 100  # one of this many seeds is run twice
_STORIES_EACH = 20  # stories per process


def _many(seeds: Sequence[int], jobs: int, plot: Plot) -> int:
    told: dict[int, teller.Told] = {}
    failed: list[int] = []
    faults: Counter[str] = Counter()
    for one in _told(seeds, jobs, plot):
        told[one.seed] = one
        faults.update(one.faults)
        if not one.passed:
            failed.append(one.seed)
            sys.stdout.write(one.words + "\n")
        if not one.passed or len(told) % 10 == 0:
            sys.stdout.write(f"{len(told)} of {len(seeds)} stories told\n")
            sys.stdout.flush()
    for again in _told([seed for seed in seeds if seed % EVERY == EVERY // 2], jobs, plot):
        if again.digest != told[again.seed].digest:
            failed.append(again.seed)
            sys.stdout.write(f"seed {again.seed}: FAILED, two runs of it saw different things\n")
    cpu_s = sum(one.seconds for one in told.values())
    sys.stdout.write(f"{len(told)} stories, {cpu_s / len(told):.1f} s each; faults: ")
    sys.stdout.write(", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())) + "\n")
    if failed:
        names = " ".join(map(str, sorted(set(failed))))
        sys.stdout.write(f"FAILED seeds: {names}; repeat one with `make sim SEED={failed[0]}`\n")
        return 1
    sys.stdout.write("PASSED\n")
    return 0


def _told(seeds: Sequence[int], jobs: int, plot: Plot) -> Iterator[teller.Told]:
    """Starts new processes from time to time, so that none grows for hours."""
    spawn, many = multiprocessing.get_context("spawn"), _STORIES_EACH * jobs
    for some in (seeds[at : at + many] for at in range(0, len(seeds), many)):
        with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
            yield from pool.map(teller.tell_briefly, some, [plot] * len(some))


def _one(seed: int, history: Path | None, plot: Plot) -> int:
    sink = None if history is None else history.open("w")
    try:
        outcome = tell(seed, plot, sink)
    finally:
        if sink is not None:
            sink.close()
    sys.stdout.write(f"{outcome}\n  digest {outcome.digest}\n")
    return 0 if outcome.passed else 1


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description="Simulated clusters under faults.")
    parser.add_argument("--seeds", type=int, default=20, help="how many stories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=None, help="this one only, in full")
    parser.add_argument("--history", type=Path, default=None, help="with --seed: where to write what clients saw")
    parser.add_argument("--trouble", type=float, default=60.0, help="virtual seconds in which things go wrong")
    parser.add_argument("--log", action="store_true", help="with --seed: what the brokers log")
    parser.add_argument("--delays", action="store_true", help="delayed messages in every story, not in one of five")
    parser.add_argument("--calm", action="store_true", help="no faults: delayed messages must then come soon")
    asked = parser.parse_args(arguments)
    plot = Plot(trouble_s=asked.trouble, faults=not asked.calm, delays=asked.delays or None)
    if asked.seed is not None:
        if asked.log:
            logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
        else:
            logging.disable(logging.CRITICAL)
        return _one(asked.seed, asked.history, plot)
    return _many(range(asked.first, asked.first + asked.seeds), asked.jobs, plot)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", "sim", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main(sys.argv[1:]))
