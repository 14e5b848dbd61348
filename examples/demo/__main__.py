"""A complete demo in one command: `make demo`, or `python -m examples.demo --seconds 60`.

It runs a broker; a producer of web logs with some duplicates; three pipelines in one Spark session, each in a thread:
dedup (weblogs to weblogs-once), archive (weblogs-once to a lake) and aggregate (weblogs-once to weblogs-numbers); and a
live table. Ctrl-C, or the end of the seconds, stops the producer, the pipelines, Spark and the broker, in this order.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.live import Live

from examples.demo.live_table import Board, Windows, picture
from examples.demo.stage import PATIENCE_S, Shipper, broker, create_topics
from headrace.model.failure import Failure
from headrace.spark.lake.lake import open_lake
from headrace.spark.pipelines.catalogue import read_configuration
from headrace.spark.pipelines.launch import launch, start_spark

TOPICS = {"weblogs": 2, "weblogs-once": 2, "weblogs-numbers": 1}


def configurations(bootstrap: str, folder: Path, window: str) -> dict[str, dict[str, Any]]:
    def source(topic: str) -> dict[str, Any]:
        return {"brokers": bootstrap, "topics": [topic]}

    return {
        "dedup": {
            "pipeline": "dedup", "source": source("weblogs"), "within": "10m", "to": {"topic": "weblogs-once"},
            "checkpoint": str(folder / "checkpoints" / "dedup"), "trigger": "1s",
        },
        "archive": {
            "pipeline": "archive", "source": source("weblogs-once"), "lake": {"path": str(folder / "lake")},
            "checkpoint": str(folder / "checkpoints" / "archive"), "trigger": "2s",
        },
        "aggregate": {
            "pipeline": "aggregate", "source": source("weblogs-once"), "parse": {"format": "access-log"},
            "time": "time", "window": window, "watermark": "1s", "by": ["status"],
            "measures": {
                "requests": "count", "per_second": "rate", "p95_seconds": {"percentile": 0.95, "of": "seconds"},
                "pages": {"top": 3, "of": "path"},
            },
            "to": {"topic": {"topic": "weblogs-numbers"}},
            "checkpoint": str(folder / "checkpoints" / "aggregate"), "trigger": "2s",
        },
    }  # fmt: skip


def play(folder: Path, seconds: float | None, lines_per_s: int, window: str, over: threading.Event) -> Board:
    board = Board()
    console = Console()
    with broker(folder / "broker") as bootstrap:
        create_topics(bootstrap, TOPICS)
        console.print(f"broker at {bootstrap}, everything in {folder}; starting Spark")
        configs = {
            name: read_configuration(yaml.safe_dump(document), name)
            for name, document in configurations(bootstrap, folder, window).items()
        }
        spark = start_spark(configs["dedup"], None)
        shipper = Shipper(bootstrap, "weblogs", lines_per_s)
        windows = Windows(bootstrap, "weblogs-numbers")
        lake = open_lake(str(folder / "lake"))

        def run(name: str) -> None:
            try:
                launch(configs[name], spark=spark, reporter=board.reporter(name), stop_asked=over.is_set)
            except Failure as failure:
                board.failures[name] = str(failure)
                over.set()

        threads = [threading.Thread(target=run, args=(name,), name=name) for name in configs]
        shipper.start()
        for thread in threads:
            thread.start()
        ends_at = time.monotonic() + seconds if seconds is not None else float("inf")
        with Live(console=console, auto_refresh=False) as live:
            while not over.wait(0.5) and time.monotonic() < ends_at:
                windows.look()
                live.update(picture(board, windows, shipper.sent, lake.load().contents.rows()), refresh=True)
        over.set()
        console.print("stopping")
        shipper.stop()
        for thread in threads:
            thread.join(PATIENCE_S)
        windows.close()
        spark.stop()
        rows = lake.load().contents.rows()
    console.print(f"{shipper.sent:,} lines sent; {rows:,} rows in the lake {folder / 'lake'}")
    return board


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after this many seconds; default: on Ctrl-C")
    parser.add_argument("--rate", type=int, default=500, help="lines a second (500)")
    parser.add_argument("--window", default="10s", help="length of the windows of numbers (10s)")
    parser.add_argument("--folder", type=Path, help="folder for data and lake; default: a temporary folder")
    wanted = parser.parse_args()
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: over.set())
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as temporary:
        folder = (wanted.folder or Path(temporary)).resolve()
        board = play(folder, wanted.seconds, wanted.rate, wanted.window, over)
    if board.failures:
        sys.exit("; ".join(f"{name}: {error}" for name, error in board.failures.items()))


if __name__ == "__main__":
    main()
