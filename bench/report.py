"""Builds the result table from samples: absolute figures, ratio, goal, and whether it was met.

Pure: text and plain data out; __main__ prints and stores them. Called once, at the end of a run.
"""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from bench.cores import MACHINE
from bench.disk import FILE
from bench.figures import Samples
from bench.goals import CHAPTERS, Goal, Metric, titled
from bench.latency import ECHO
from bench.peers import FLUSH_MS

OURS, THEIRS = "headrace", "Apache Kafka"
HEADINGS = ("", OURS, THEIRS, "ratio", "goal", "")
ABSENT = "n/a"
_WELL_APART = 85  # per cent of the speed of one alone
_BESIDE_THE_DISK = (
    ("produce 100 B, large batches", "produce.mb", "file.write"),
    ("produce 100 B, 16 KB batches", "small.mb", "file.write"),
    ("produce 1 KB over 4 partitions", "spread.mb", "file.write"),
    ("consume 100 B", "consume.mb", "file.read"),
)
_KINDS = (("produce", "large batches"), ("small", "16 KB batches"), ("spread", "1 KB"), ("consume", "consume"))


@dataclass(frozen=True)
class Circumstances:
    """Where, when and how a run was made."""

    machine: str
    when: str
    peers: Mapping[str, str]
    rounds: int
    mode: str
    cores: int
    sizes: Mapping[str, object]
    remarks: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Row:
    cells: tuple[str, ...]
    heading: bool = False


def rows(samples: Samples, sizes: Mapping[str, object]) -> list[Row]:
    """The main table; a chapter without measurements is omitted."""
    table: list[Row] = []
    for chapter in CHAPTERS:
        if chapter.peers is not None:
            continue
        body = [_row(metric, samples, sizes) for metric in chapter.metrics if _measured(metric, samples)]
        if body:
            table += [Row((titled(chapter.title, sizes), "", "", "", "", ""), heading=True), *body]
    return table


def other_tables(samples: Samples, sizes: Mapping[str, object]) -> list[tuple[tuple[str, ...], list[Row]]]:
    """A table for each measured chapter that Apache Kafka has no part in: its headings and its rows."""
    tables = []
    for chapter in CHAPTERS:
        if chapter.peers is None:
            continue
        columns = (OURS, *chapter.peers)
        measured = [one for one in chapter.metrics if any(samples.values(one.key, peer) for peer in columns)]
        if measured:
            headings = (titled(chapter.title, sizes), *columns, "goal", "")
            tables.append((headings, [_row_beside(metric, columns, samples, sizes) for metric in measured]))
    return tables


def disk_rows(samples: Samples) -> list[Row]:
    """The brokers' MB/s beside a plain file's on the same disk."""
    table = []
    for title, metric, file_metric in _BESIDE_THE_DISK:
        ours, theirs = samples.median(metric, OURS), samples.median(metric, THEIRS)
        plain = samples.median(file_metric, FILE)
        if plain is not None and (ours is not None or theirs is not None):
            share = f"{ours / plain:.0%}" if ours is not None else ABSENT
            table.append(Row((title, figure(ours, "MB/s"), figure(theirs, "MB/s"), figure(plain, "MB/s"), share)))
    return table


def disk_line(samples: Samples) -> str | None:
    names = ("file.write", "file.write_synced", "file.read", "file.read_cold")
    values = [samples.median(name, FILE) for name in names]
    if None in values:
        return None
    write, synced, read, cold = (figure(value, "MB/s") for value in values)
    return (
        f"A plain file on the same disk: write {write} into the page cache, {synced} with fsync; "
        f"read {read} from the page cache, {cold} from the disk."
    )


def echo_line(samples: Samples) -> str | None:
    p50, p99 = (samples.median(f"bare.{label}", ECHO) for label in ("p50", "p99"))
    if p50 is None or p99 is None:
        return None
    return (
        f"A server in C that only writes and answers, over a bare socket: p50 {p50 * 1000:.0f} µs, "
        f"p99 {p99 * 1000:.0f} µs; no broker that sleeps in between gets below that on this machine."
    )


def cores_line(samples: Samples) -> str | None:
    """A remark if two processors share a core at times, because figures that need both then vary."""
    shares = samples.values("cores.together", MACHINE)
    if not shares or min(shares) >= _WELL_APART:
        return None
    return (
        f"Two busy programs at once ran at {min(shares):.0f} to {max(shares):.0f} % of the speed of one alone, "
        f"{statistics.median(shares):.0f} % in the median: the processors of this machine share a core at times, and "
        "one message at a time takes longer then."
    )


def idempotence_line(samples: Samples) -> str | None:
    """The client library's own share of the cost of idempotence."""
    plain, idempotent = (samples.median(f"{kind}.generator", OURS) for kind in ("plain", "idempotent"))
    if not plain or not idempotent:
        return None
    return (
        f"librdkafka's own CPU per million messages, plain and idempotent: {plain:.2f} and {idempotent:.2f} s, "
        f"{idempotent / plain - 1:+.0%}."
    )


def ceiling_lines(samples: Samples, cores: int) -> list[str]:
    """The throughput limit of the generator itself: where it is near the goal, it is the bottleneck."""
    lines = []
    for key, title in _KINDS:
        own, rate = samples.median(f"{key}.generator", THEIRS), samples.median(f"{key}.rate", THEIRS)
        if own and rate:
            ceiling = cores * 1e6 / own / rate
            lines.append(f"{title}: {own:.2f} s, at most {ceiling:.1f}x Kafka")
    if lines:
        intro = "CPU of the load generator per million messages, and how far a broker that costs nothing could get"
        return [f"{intro} on {cores} cores: " + "; ".join(lines) + "."]
    return []


def figure(value: float | None, unit: str) -> str:
    """A value, formatted."""
    if value is None:
        return ABSENT
    if math.isinf(value):
        return "beyond the buckets"
    if unit == "msg/s":
        return f"{value / 1e6:.2f}M msg/s" if value >= 1e6 else f"{value / 1e3:.0f}k msg/s"
    if unit == "x":
        return f"{value:.2f}x"
    if unit == "":
        return f"{value:,.0f}"
    if unit in ("%", "% of a core"):
        return f"{value:.1f} {unit}"
    if unit == "ms" or value < 10:
        return f"{value:.2f} {unit}" if unit != "MB" else f"{value:.1f} {unit}"
    return f"{value:,.0f} {unit}" if unit in ("MB", "MB/s") else f"{value:.1f} {unit}"


def verdict(goal: Goal | None, value: float | None, ratio: float | None) -> str:
    if goal is None:
        return ""
    judged = ratio if goal.against == "ratio" else value
    if judged is None:
        return "not judged"
    return "met" if goal.met(judged) else "MISSED"


def as_text(samples: Samples, about: Circumstances) -> str:
    """For a terminal."""
    out = io.StringIO()
    console = Console(file=out, width=150)
    console.print(_introduction(about), highlight=False)
    main = Table(*HEADINGS, show_edge=False)
    for row in rows(samples, about.sizes):
        if row.heading:
            main.add_section()
        main.add_row(*row.cells, style="bold" if row.heading else None)
    if main.row_count:
        console.print(main)
    for headings, body in other_tables(samples, about.sizes):
        table = Table(*headings, show_edge=False)
        for row in body:
            table.add_row(*row.cells)
        console.print()
        console.print(table)
    beside = disk_rows(samples)
    if beside:
        table = Table("MB/s of payload", OURS, THEIRS, "plain file, page cache", f"{OURS} / file", show_edge=False)
        for row in beside:
            table.add_row(*row.cells)
        console.print()
        console.print(table)
    for line in _afterwords(samples, about):
        console.print(line, highlight=False)
    return out.getvalue()


def as_markdown(samples: Samples, about: Circumstances) -> str:
    """For the README."""
    lines = [_introduction(about), ""]
    main = rows(samples, about.sizes)
    lines += _markdown_table(HEADINGS, main) if main else []
    for headings, body in other_tables(samples, about.sizes):
        lines += ["", *_markdown_table(headings, body)]
    beside = disk_rows(samples)
    if beside:
        headings = ("MB/s of payload", OURS, THEIRS, "plain file, page cache", f"{OURS} / file")
        lines += ["", *_markdown_table(headings, beside)]
    for line in _afterwords(samples, about):
        lines += ["", line]
    return "\n".join(lines) + "\n"


def as_data(samples: Samples, about: Circumstances) -> dict[str, object]:
    """For a program: every value of every round."""
    return {
        "machine": about.machine,
        "when": about.when,
        "peers": dict(about.peers),
        "rounds": about.rounds,
        "mode": about.mode,
        "sizes": dict(about.sizes),
        "remarks": list(about.remarks),
        "samples": samples.as_dict(),
    }


def _row(metric: Metric, samples: Samples, sizes: Mapping[str, object]) -> Row:
    ours, theirs = samples.median(metric.key, OURS), samples.median(metric.key, THEIRS)
    ratio = samples.ratio(metric.key, OURS, THEIRS)
    return Row(
        (
            titled(metric.title, sizes),
            figure(ours, metric.unit),
            figure(theirs, metric.unit),
            ABSENT if ratio is None else f"{ratio:.2f}x",
            _goal_text(metric),
            verdict(metric.goal, ours if sizes.get("full", True) else None, ratio),
        )
    )


def _row_beside(metric: Metric, columns: Sequence[str], samples: Samples, sizes: Mapping[str, object]) -> Row:
    figures = [_with_spread(metric, samples.values(metric.key, peer)) for peer in columns]
    ours = samples.median(metric.key, OURS) if sizes.get("full", True) else None
    return Row((titled(metric.title, sizes), *figures, _goal_text(metric), verdict(metric.goal, ours, None)))


def _with_spread(metric: Metric, values: Sequence[float]) -> str:
    if not values:
        return ABSENT
    told = figure(statistics.median(values), metric.unit)
    if not metric.spread or len(values) < 2:
        return told
    least, largest = (figure(value, metric.unit).split(" ")[0] for value in (min(values), max(values)))
    return f"{told} ({least} to {largest})"


def _goal_text(metric: Metric) -> str:
    goal = metric.goal
    if goal is None:
        return ""
    sign, bound = (">=", goal.at_least) if goal.at_least is not None else ("<=", goal.at_most)
    assert bound is not None
    text = f"{bound:g}x" if goal.against == "ratio" else figure(bound, metric.unit)
    return f"{sign} {text}"


def _measured(metric: Metric, samples: Samples) -> bool:
    return any(samples.median(metric.key, peer) is not None for peer in (OURS, THEIRS))


def _introduction(about: Circumstances) -> str:
    versions = ", ".join(f"{name} {version}" if version else name for name, version in about.peers.items())
    flush = f"both flush in the background every {FLUSH_MS} ms"
    return f"{versions}; {about.mode}; {flush}; median of {about.rounds} rounds; {about.machine}; {about.when}"


def _afterwords(samples: Samples, about: Circumstances) -> list[str]:
    lines = (disk_line(samples), echo_line(samples), cores_line(samples), idempotence_line(samples))
    return [*filter(None, lines), *ceiling_lines(samples, about.cores), *about.remarks]


def _markdown_table(headings: Sequence[str], body: Sequence[Row]) -> list[str]:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for row in body:
        cells = (f"**{row.cells[0]}**", *row.cells[1:]) if row.heading else row.cells
        lines.append("| " + " | ".join(cells) + " |")
    return lines
