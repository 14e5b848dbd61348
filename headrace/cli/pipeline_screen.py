"""Shows a running pipeline in a terminal: a progress bar for jobs, a live line for each stream, tables.

Passed to the launcher by `headrace pipeline run`. Everything but tables goes to stderr. Invariant: on a terminal lines
are updated in place, in a pipe or a log file each report is a new line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from headrace.cli.moments import describe_span
from headrace.cli.screen import print_table, remark

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress

    from headrace.spark.pipelines.progress import StreamFacts


class PipelineScreen:
    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._live: Live | None = None
        self._bar: Progress | None = None
        self._lines: dict[str, str] = {}
        self._told = (-1, -1)

    def __enter__(self) -> PipelineScreen:
        if self._on_terminal:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False)
        else:
            remark(text)

    def stream(self, query: str, facts: StreamFacts) -> None:
        line = stream_line(query, facts)
        self._lines[query] = line
        if self._live is None:
            remark(line)
        else:
            self._draw()

    def batch(self, done: int, total: int) -> None:
        if self._live is None:
            if (done, total) != self._told:
                remark(f"{done} of {total} tasks done")
            self._told = done, total
            return
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(TextColumn("tasks"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar.add_task("tasks")
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        self._draw()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        print_table(columns, rows)

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        assert self._live is not None
        bar = [self._bar] if self._bar is not None else []
        self._live.update(Group(*bar, *(Text(line) for line in self._lines.values())))


def stream_line(query: str, facts: StreamFacts) -> str:
    """Such as `archive  batch 12  1,204,000 rows  45,310 rows/s  lag 12,000  caught up in 3s`."""
    parts = [query, f"batch {facts.batch}", f"{facts.rows:,} rows", f"{facts.rows_per_s:,.0f} rows/s"]
    if facts.lag is not None:
        parts.append(f"lag {facts.lag:,}")
        if facts.lag == 0:
            parts.append("caught up")
        elif facts.catch_up_s is None:
            parts.append("falling behind")
        else:
            parts.append(f"caught up in {describe_span(facts.catch_up_s)}")
    return "  ".join(parts)
