"""`make bench-spark`: headrace's Spark source and sink beside Spark's own Kafka connector, on the same broker.

One Spark session runs the same works with both formats in turn, round after round, against one headrace broker; the
table shows medians of rows per second and CPU (JVM and Python workers, without the broker), and their ratios. The first
round is a warm-up. Another round starts only if it fits into --minutes, so that a busy machine gives fewer rounds, but
a complete table. `--quick` uses small topics, to check that everything runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from bench import machine
from bench.figures import Samples
from bench.peers import HeadraceRecipe, Peer, PeerMissing
from bench.processes import Children
from bench.spark import connector, decoding
from bench.spark.filled_topic import create, fill
from bench.spark.table import LINES, Line, as_markdown, as_text, rows
from bench.spark.works import FORMATS, WORKS, Dataset
from headrace.client.metadata import Cluster

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
PARTITIONS = 4
RECORDS = {100: 4_000_000, 1000: 600_000}
QUICK_RECORDS = {100: 200_000, 1000: 40_000}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small topics")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, at most (default 5)")
    parser.add_argument("--minutes", type=float, default=12, help="start no round that would end later (default 12)")
    parser.add_argument("--only", action="append", choices=list(WORKS), help="one work; may be repeated")
    options = parser.parse_args()
    began, load_before = time.monotonic(), machine.load_average()
    decoded = decoding.rates(200_000 if options.quick else 2_000_000)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-spark-") as folder, Children() as children:
        recipe = HeadraceRecipe()
        try:
            jars = connector.jars()
            recipe.prepare(children)
        except PeerMissing as missing:
            print(f"bench-spark: {missing}", file=sys.stderr)
            return 1
        broker = Peer(recipe, children, Path(folder) / "broker")
        broker.format()
        broker.start()
        bench = Bench(connector.session(jars, "2g"), [line for line in LINES if line.work in (options.only or WORKS)])
        try:
            bench.fill(broker.address, QUICK_RECORDS if options.quick else RECORDS)
            counted = bench.rounds(options.rounds, began + options.minutes * 60)
        finally:
            bench.spark.stop()
    about = (
        f"Median of {counted} round{'s' * (counted > 1)}; {machine.describe()}; load average {load_before:.1f} before "
        f"the run, which took {(time.monotonic() - began) / 60:.0f} minutes."
    )
    if options.quick:
        about += " A quick run: small topics, dominated by the fixed cost of a query."
    _write(bench.samples, decoded, about)
    return 0


class Bench:
    """The works in one warm Spark session, and everything that was measured."""

    def __init__(self, spark: SparkSession, lines: list[Line]) -> None:
        self.spark = spark
        self.samples = Samples()
        self._lines = lines
        self._datasets: dict[int, Dataset] = {}

    def fill(self, bootstrap: str, records: dict[int, int]) -> None:
        for value_bytes, wanted in records.items():
            topic = f"bench-{value_bytes}"
            filled = fill(bootstrap, topic, PARTITIONS, wanted, value_bytes)
            self._datasets[value_bytes] = Dataset(bootstrap, topic, filled, value_bytes)
            with Cluster([bootstrap], "bench") as cluster:
                for source in FORMATS:
                    create(cluster, f"{topic}-written-{source}", PARTITIONS)

    def rounds(self, most: int, deadline: float) -> int:
        """One warm-up round, one that counts, and more while they fit; returns how many counted."""
        for turn in range(most + 1):
            began = time.monotonic()
            for line in self._lines:
                for source in FORMATS if turn % 2 else reversed(FORMATS):
                    self._measure(line, source, counts=turn > 0)
            took_s = time.monotonic() - began
            print(f"{f'round {turn}' if turn else 'warm-up'}: {took_s:.0f} s", file=sys.stderr, flush=True)
            if turn and time.monotonic() + took_s > deadline:
                break
        return turn

    def _measure(self, line: Line, source: str, *, counts: bool) -> None:
        dataset = self._datasets[line.value_bytes]
        took = WORKS[line.work](self.spark, source, dataset)
        if counts:
            self.samples.add(f"{line.title}.rate", source, dataset.records / took.working_s / 1000)
            self.samples.add(f"{line.title}.cpu", source, took.cpu_s / dataset.records * 1e6)
            if took.starting_s is not None:
                self.samples.add("start", source, took.starting_s)


def _write(samples: Samples, decoded: dict[str, float], about: str) -> None:
    table = rows(samples, decoded)
    print(f"{as_text(table)}\n\n{about}")
    RESULTS.mkdir(exist_ok=True)
    name = f"spark-{time.strftime('%Y-%m-%d-%H%M')}"
    (RESULTS / f"{name}.md").write_text(f"{as_markdown(table)}\n\n{about}\n")
    everything = {"about": about, "decode": decoded, "samples": samples.as_dict()}
    (RESULTS / f"{name}.json").write_text(json.dumps(everything))


if __name__ == "__main__":
    sys.exit(main())
