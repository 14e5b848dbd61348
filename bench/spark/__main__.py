"""`make bench-spark`: headrace's Spark source and sink beside Spark's own Kafka connector, on the same broker.

One Spark session runs the same works with both formats in turn, round after round, against one headrace broker; the
table shows medians, rows a second and CPU (JVM and Python workers, the broker not counted), and their ratios. The
first round of each only warms up. `--quick` takes small topics and few rounds: to see that all of it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from bench import machine
from bench.peers import HeadraceRecipe, Peer, PeerMissing
from bench.processes import Children
from bench.spark import connector, decoding
from bench.spark.filled_topic import create, fill
from bench.spark.works import FORMATS, WORKS, Place
from headrace.client.metadata import Cluster

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
PARTITIONS = 4
# (work, bytes of a value) -> what headrace must reach beside the tuned connector: rows a second, CPU a row
GOALS = {
    ("aggregate", 100): (1.4, 0.9),
    ("all columns", 100): (1.4, 0.9),
    ("aggregate", 1000): (1.4, 1.0),
    ("all columns", 1000): (1.4, 1.0),
    ("stream of values", 100): (1.0, 1.0),
    ("stream of values", 1000): (1.0, 1.0),
    ("stream of all columns", 100): (1.0, 1.0),
    ("stream of all columns", 1000): (1.0, 1.0),
    ("write", 100): (1.3, None),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small topics, two rounds")
    parser.add_argument("--rounds", type=int, default=0, help="rounds that count (default 5, quick 2)")
    parser.add_argument("--only", action="append", choices=list(WORKS), help="one work; may be repeated")
    options = parser.parse_args()
    rounds = options.rounds or (2 if options.quick else 5)
    sizes = {100: 200_000, 1000: 40_000} if options.quick else {100: 4_000_000, 1000: 600_000}
    rates = decoding.rates(200_000 if options.quick else 2_000_000)
    for what, rate in rates.items():
        print(f"decode {what} of 100 B records on one core: {rate / 1e6:.1f} million a second", flush=True)
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
        table = measure(broker.address, jars, sizes, rounds, options.only or list(WORKS))
    print(table_text(table))
    RESULTS.mkdir(exist_ok=True)
    shown = {f"{work} {size} B": figures for (work, size), figures in table.items()}
    (RESULTS / "spark.json").write_text(json.dumps({"machine": machine.describe(), "decode": rates, "works": shown}))
    return 0


Figures = dict[str, dict[str, float]]  # format -> rate, cpu_us


def measure(
    bootstrap: str, jars: list[Path], sizes: dict[int, int], rounds: int, wanted: list[str]
) -> dict[tuple[str, int], Figures]:
    spark = connector.session(jars, "2g")
    table: dict[tuple[str, int], Figures] = {}
    try:
        for value_bytes, records in sizes.items():
            topic = f"bench-{value_bytes}"
            place = Place(bootstrap, topic, fill(bootstrap, topic, PARTITIONS, records, value_bytes), value_bytes)
            with Cluster([bootstrap], "bench") as cluster:
                for source in FORMATS:
                    create(cluster, f"{topic}-written-{source}", PARTITIONS)
            for work in wanted:
                table[work, value_bytes] = one_work(spark, work, place, rounds)
    finally:
        spark.stop()
    return table


def one_work(spark: SparkSession, work: str, place: Place, rounds: int) -> Figures:
    """Both formats in turn, so that what disturbs the machine disturbs both."""
    rates: dict[str, list[float]] = defaultdict(list)
    cpus: dict[str, list[float]] = defaultdict(list)
    for turn in range(rounds + 1):
        for source in FORMATS:
            began, cpu = time.monotonic(), cpu_seconds()
            WORKS[work](spark, source, place)
            if turn:
                rates[source].append(place.records / (time.monotonic() - began))
                cpus[source].append((cpu_seconds() - cpu) / place.records * 1e6)
    found = {
        source: {"rate": statistics.median(rates[source]), "cpu_us": statistics.median(cpus[source])}
        for source in FORMATS
    }
    print(row_text(work, place.value_bytes, found), flush=True)
    return found


def cpu_seconds() -> float:
    """What the JVM and its Python workers have used so far, those that ended included; this process only waits."""
    me = psutil.Process(os.getpid())
    used = 0.0
    for process in me.children(recursive=True):
        try:
            if "serve" not in process.cmdline():
                used += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return used


def row_text(work: str, value_bytes: int, found: Figures) -> str:
    ours, theirs = found["headrace"], found["kafka"]
    rate, cpu = ours["rate"] / theirs["rate"], ours["cpu_us"] / theirs["cpu_us"]
    least, most = GOALS.get((work, value_bytes), (None, None))
    verdicts = []
    if least is not None:
        verdicts.append(f"rate {'reached' if rate >= least else 'MISSED'} (goal {least})")
    if most is not None:
        verdicts.append(f"CPU {'reached' if cpu <= most else 'MISSED'} (goal {most})")
    return (
        f"{work + f', {value_bytes} B':30} {ours['rate'] / 1000:8.0f} {theirs['rate'] / 1000:8.0f} {rate:6.2f}x   "
        f"{ours['cpu_us']:7.2f} {theirs['cpu_us']:7.2f} {cpu:6.2f}x   {', '.join(verdicts)}"
    )


def table_text(table: dict[tuple[str, int], Figures]) -> str:
    head = (
        f"{'':30} thousand rows a second        CPU microseconds a row\n"
        f"{'':30} headrace    kafka  ratio   headrace   kafka  ratio"
    )
    lines = [row_text(work, size, found) for (work, size), found in table.items()]
    return "\n".join([f"\n{machine.describe()}, load {machine.load_average():.1f}", head, *lines])


if __name__ == "__main__":
    sys.exit(main())
