"""`python -m bench.against FOLDER`: this checkout beside an earlier one, in alternating pairs of one run.

For judging a change of the broker: a ratio between two commits needs pairs that met the same state of the machine, and
no Apache Kafka. FOLDER is a checkout whose modules are compiled (`python setup.py build_ext --inplace` there); both
brokers run in this checkout's environment. The workloads are those of the bench (run.py), and so is the way of taking
turns. Each metric is told with both medians, the median of the ratios of the pairs, and the least and largest of these.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Samples
from bench.goals import CHAPTERS, titled
from bench.peers import CACHE, HeadraceRecipe
from bench.processes import Children
from bench.report import figure
from bench.run import IN_ROUNDS, Bench
from bench.sizes import QUICK, Sizes

BEFORE = "before"


def main() -> int:
    parser = argparse.ArgumentParser("bench.against", description="this checkout beside an earlier one, in pairs")
    parser.add_argument("folder", type=Path, help="the earlier checkout, with its modules compiled")
    parser.add_argument("--only", default="throughput,latency", help=f"a comma list of {', '.join(IN_ROUNDS)}")
    parser.add_argument("--rounds", type=int, default=7, help="pairs per measurement (default 7)")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    options = parser.parse_args()
    wanted = tuple(options.only.split(","))
    if unknown := set(wanted) - set(IN_ROUNDS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(IN_ROUNDS)}")
    if not (options.folder / "headrace" / "__init__.py").exists():
        parser.error(f"{options.folder} is no checkout of headrace")
    CACHE.mkdir(exist_ok=True)
    sizes = QUICK if options.quick else Sizes()
    with tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as folder, Children() as children:
        bench = Bench(children, Path(folder), sizes, options.rounds, warm=False)
        bench.run(wanted, (HeadraceRecipe(), HeadraceRecipe(BEFORE, options.folder.resolve())))
    Console(width=140).print(table(bench.samples, sizes), *bench.remarks, sep="\n", highlight=False)
    return 0


def table(samples: Samples, sizes: Sizes) -> Table:
    made = Table("", BEFORE, "now", "now / before", "pairs", show_edge=False)
    for metric in (metric for chapter in CHAPTERS for metric in chapter.metrics):
        now, before = samples.values(metric.key, HeadraceRecipe.name), samples.values(metric.key, BEFORE)
        ratio = samples.ratio(metric.key, HeadraceRecipe.name, BEFORE)
        if ratio is not None:
            pairs = [one / other for one, other in zip(now, before, strict=True)]
            made.add_row(
                titled(metric.title, vars(sizes)),
                figure(samples.median(metric.key, BEFORE), metric.unit),
                figure(samples.median(metric.key, HeadraceRecipe.name), metric.unit),
                f"{ratio:.3f}x",
                f"{min(pairs):.2f} to {max(pairs):.2f}",
            )
    return made


if __name__ == "__main__":
    sys.exit(main())
