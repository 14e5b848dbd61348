"""The live table of the demo: the progress of the pipelines, and their newest window of results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.spark.pipelines.progress import StreamFacts


class Board:
    """The latest reports of the pipelines; each reports from its own thread."""

    def __init__(self) -> None:
        self.facts: dict[str, StreamFacts] = {}
        self.failures: dict[str, str] = {}

    def reporter(self, pipeline: str) -> BoardReporter:
        return BoardReporter(self, pipeline)


class BoardReporter:
    def __init__(self, board: Board, pipeline: str) -> None:
        self._board = board
        self._pipeline = pipeline

    def note(self, text: str) -> None:
        """Notes are not shown in the table."""

    def stream(self, query: str, facts: StreamFacts) -> None:
        self._board.facts[self._pipeline] = facts

    def batch(self, done: int, total: int) -> None:
        """Streams only."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Streams only."""


class Windows:
    """The newest window in the topic of aggregated numbers."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "demo-table", "isolation.level": "read_committed",
            "log_level": 0,
        })  # fmt: skip
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.start = ""
        self.rows: dict[int, dict[str, Any]] = {}

    def look(self) -> None:
        for message in self._consumer.consume(1000, 0.0):
            value = message.value()
            if message.error() is not None or value is None:
                continue
            row = json.loads(value)
            if row["window_start"] > self.start:
                self.start, self.rows = row["window_start"], {}
            if row["window_start"] == self.start:
                self.rows[row["status"]] = row

    def close(self) -> None:
        self._consumer.close()


def picture(board: Board, windows: Windows, sent: int, lake_rows: int) -> RenderableType:
    """The whole screen."""
    pipelines = Table(title=f"{sent:,} lines sent, {lake_rows:,} rows in the lake", title_justify="left")
    for name in ("pipeline", "rows", "rows/s", "lag", "batch"):
        pipelines.add_column(name, justify="left" if name == "pipeline" else "right")
    for pipeline in ("dedup", "archive", "aggregate"):
        facts = board.facts.get(pipeline)
        cells = ["starting"] * 4
        if facts is not None:
            lag = "-" if facts.lag is None else f"{facts.lag:,}"
            cells = [f"{facts.rows:,}", f"{facts.rows_per_s:,.0f}", lag, str(facts.batch)]
        pipelines.add_row(pipeline, *cells)
    numbers = Table(title=f"web requests, window of {windows.start or '...'}", title_justify="left")
    for name in ("status", "requests", "per second", "p95 seconds", "top pages"):
        numbers.add_column(name, justify="left" if name == "top pages" else "right")
    for status, row in sorted(windows.rows.items()):
        pages = ", ".join(f"{page['item']} ({page['count']})" for page in row["pages"])
        p95 = row.get("p95_seconds")
        numbers.add_row(
            str(status), str(row["requests"]), f"{row['per_second']:.1f}", "-" if p95 is None else f"{p95:.3f}", pages
        )
    failures = [Text(f"{name}: {error}", style="red") for name, error in board.failures.items()]
    return Group(pipelines, numbers, *failures)
