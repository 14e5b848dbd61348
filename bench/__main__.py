"""`make bench`: measures headrace and Apache Kafka side by side in one run and prints the table.

Owns the command line and the output; run.py owns the measurements. On every exit all child processes are ended and the
data folders removed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import machine, report
from bench.delayed.sizes import with_pending
from bench.figures import Samples
from bench.peers import CACHE, KAFKA_VERSION, HeadraceRecipe, KafkaRecipe
from bench.processes import Children
from bench.run import SECTIONS, Bench
from bench.sizes import QUICK, Sizes

RESULTS = Path(__file__).parent / "results"
FRESH_MODE = "brokers restarted for each round, a short warm-up before each measurement"
WARM_MODE = "brokers kept running, the JVM fully warm"


def main() -> int:
    options = _options()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    CACHE.mkdir(exist_ok=True)
    sizes = QUICK if options.quick else Sizes()
    if options.pending:
        sizes = dataclasses.replace(sizes, delays=with_pending(sizes.delays, options.pending), full=False)
    when, begin, load_before = time.strftime("%Y-%m-%d %H:%M"), time.monotonic(), machine.load_average()
    with _data_folder(options.folder) as folder, Children() as children:
        bench = Bench(children, folder, sizes, options.rounds, options.warm)
        took_part = bench.run(options.only, (HeadraceRecipe(), KafkaRecipe()))
    if options.quick:
        bench.remarks.append("A quick run: small sizes, so the goals on headrace's own figures are not judged.")
    if options.pending:
        bench.remarks.append("The goals are for a million pending messages, so they are not judged.")
    if load_before > 0.5:
        bench.remarks.append(f"The machine was busy before the run (load average {load_before:.1f}).")
    bench.remarks.append(f"The run took {(time.monotonic() - begin) / 60:.1f} minutes.")
    about = report.Circumstances(
        machine=machine.describe(),
        when=when,
        peers=_versions(took_part) | bench.versions,
        rounds=options.rounds,
        mode=WARM_MODE if options.warm else FRESH_MODE,
        cores=machine.cores(),
        sizes=dataclasses.asdict(sizes),
        remarks=bench.remarks,
    )
    _write(bench.samples, about, options)
    print(report.as_text(bench.samples, about))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description="headrace beside Apache Kafka, in one run")
    parser.add_argument(
        "--only", type=_sections, default=SECTIONS, help=f"sections, separated by commas: {', '.join(SECTIONS)}"
    )
    parser.add_argument("--rounds", type=int, help="rounds per measurement (default 5, quick 1)")
    parser.add_argument("--quick", action="store_true", help="one round on small sizes, about eight minutes")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--fresh", action="store_true", help="restart both brokers for each round (the default)")
    mode.add_argument("--warm", action="store_true", help="keep both running, after a warm-up long enough for the JVM")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value of every round to this file")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to this file")
    parser.add_argument(
        "--folder", type=Path, default=CACHE, help="folder for data during the run: on the disk to measure"
    )
    parser.add_argument(
        "--pending", type=int, metavar="COUNT", help="so many pending messages in the section delays, on headrace alone"
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    return options


def _sections(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    unknown = set(wanted) - set(SECTIONS)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no section {', '.join(sorted(unknown))}: choose from {', '.join(SECTIONS)}"
        )
    return wanted


def _write(samples: Samples, about: report.Circumstances, options: argparse.Namespace) -> None:
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / about.when.replace(" ", "-").replace(":", "")
    data, table = json.dumps(report.as_data(samples, about), indent=1), report.as_markdown(samples, about)
    for path, text in ((stem.with_suffix(".json"), data), (stem.with_suffix(".md"), table)):
        path.write_text(text)
    for path, text in ((options.json, data), (options.markdown, table)):
        if path:
            path.write_text(text)


@contextlib.contextmanager
def _data_folder(within: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="run-", dir=within, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _versions(took_part: Sequence[str]) -> dict[str, str]:
    versions = {HeadraceRecipe.name: importlib.metadata.version("headrace"), KafkaRecipe.name: KAFKA_VERSION}
    return {name: versions[name] for name in took_part}


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    print("interrupted; every process it started has ended", file=sys.stderr)
    os._exit(130)
