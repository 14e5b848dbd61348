"""The report on dead letters as one HTML page with plots that works offline: plain SVG, no scripts.

Pure: counts in, text out. Called by the dlq-report pipeline. Invariant: all text from records (causes, topics) is
escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLORS = ("#2f6fab", "#d9822b", "#4c9a5b", "#b04a5a", "#7a5fa8", "#8a8d91")
OTHER = "other"
WIDTH, HEIGHT, LEFT, BOTTOM = 960, 260, 60, 40


@dataclass(frozen=True)
class Letters:
    """The contents of the report: counts by cause and origin, by cause and hour, and some examples."""

    total: int
    by_cause: Sequence[tuple[str, int]]
    by_origin: Sequence[tuple[str, int]]
    by_hour: Sequence[tuple[str, str, int]]  # hour, cause, count
    examples: Sequence[Mapping[str, object]]


def page(title: str, made_at: str, letters: Letters) -> str:
    causes = [cause for cause, _ in letters.by_cause]
    colors = {cause: COLORS[min(number, len(COLORS) - 1)] for number, cause in enumerate(causes)}
    parts = [
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>{STYLE}</head>",
        f"<body><h1>{escape(title)}</h1><p>{letters.total:,} dead letters; made {escape(made_at)}.</p>",
        "<h2>By hour</h2>",
        hours_plot(letters.by_hour, colors),
        legend(causes, colors),
        "<h2>By cause</h2>",
        bars(letters.by_cause, colors),
        "<h2>By topic of origin</h2>",
        bars(letters.by_origin, {}),
        "<h2>Latest</h2>",
        examples_table(letters.examples),
        "</body></html>",
    ]
    return "\n".join(parts)


STYLE = """<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; } td, th { padding: .2em .8em .2em 0; text-align: left; vertical-align: top; }
td.number { text-align: right; } code { font-size: 13px; word-break: break-all; }
.bar { height: 1em; display: inline-block; min-width: 2px; }
.swatch { width: .8em; height: .8em; display: inline-block; }
svg text { font: 12px system-ui, sans-serif; fill: #555; }
</style>"""


def hours_plot(by_hour: Sequence[tuple[str, str, int]], colors: Mapping[str, str]) -> str:
    """Stacked bars: one per hour, a colour per cause."""
    hours = sorted({hour for hour, _, _ in by_hour})
    if not hours:
        return "<p>None.</p>"
    totals = dict.fromkeys(hours, 0)
    for hour, _, count in by_hour:
        totals[hour] += count
    highest = max(totals.values())
    step = (WIDTH - LEFT) / len(hours)
    drawn = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='dead letters by hour'>"]
    heights = dict.fromkeys(hours, 0.0)
    for hour, cause, count in sorted(by_hour, key=lambda row: list(colors).index(row[1]) if row[1] in colors else 99):
        height = count / highest * (HEIGHT - BOTTOM - 10)
        heights[hour] += height
        x = LEFT + hours.index(hour) * step
        drawn.append(
            f"<rect x='{x:.1f}' y='{HEIGHT - BOTTOM - heights[hour]:.1f}' width='{max(1.0, step - 2):.1f}' "
            f"height='{height:.1f}' fill='{colors.get(cause, COLORS[-1])}'>"
            f"<title>{escape(hour)}: {count:,} {escape(cause)}</title></rect>"
        )
    drawn.append(f"<text x='0' y='14'>{highest:,}</text><text x='0' y='{HEIGHT - BOTTOM}'>0</text>")
    for number in sorted({0, len(hours) // 2, len(hours) - 1}):
        x = min(LEFT + number * step, WIDTH - 100)
        drawn.append(f"<text x='{x:.1f}' y='{HEIGHT - BOTTOM + 18}'>{escape(hours[number])}</text>")
    return "".join([*drawn, "</svg>"])


def legend(causes: Sequence[str], colors: Mapping[str, str]) -> str:
    items = (f"<span class='swatch' style='background:{colors[cause]}'></span> {escape(cause)}" for cause in causes)
    return f"<p>{' &nbsp; '.join(items)}</p>"


def bars(counts: Sequence[tuple[str, int]], colors: Mapping[str, str]) -> str:
    """A table of counts with bars."""
    highest = max((count for _, count in counts), default=1)
    rows = (
        f"<tr><td>{escape(name)}</td><td class='number'>{count:,}</td><td><span class='bar' style='"
        f"width:{max(1, round(300 * count / highest))}px;background:{colors.get(name, COLORS[0])}'></span></td></tr>"
        for name, count in counts
    )
    return f"<table>{''.join(rows)}</table>"


def examples_table(examples: Sequence[Mapping[str, object]]) -> str:
    if not examples:
        return "<p>None.</p>"
    names = list(examples[0])
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td><code>{escape(str(row[name]))}</code></td>" for name in names) + "</tr>"
        for row in examples
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def folded(counts: Sequence[tuple[str, int]], most: int = len(COLORS)) -> list[tuple[str, int]]:
    """The largest counts, and the sum of the rest: a plot with a hundred colours is unreadable."""
    ranked = sorted(counts, key=lambda pair: (-pair[1], pair[0]))
    if len(ranked) <= most:
        return ranked
    return [*ranked[: most - 1], (OTHER, sum(count for _, count in ranked[most - 1 :]))]
