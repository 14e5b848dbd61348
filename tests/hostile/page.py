"""The table of docs/robustness.md: what each attack did to headrace and to Apache Kafka, in one run.

`python -m tests.hostile --page` fills it, so the page says only what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.hostile.attacks import Attack
from tests.hostile.trial import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "robustness.md"
BEGIN, END = "<!-- written by `python -m tests.hostile --page` -->\n", "<!-- end of the table -->\n"

Results = Mapping[Attack, Mapping[str, Outcome]]


def write(results: Results, day: str, machine: str) -> None:
    text = PAGE.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RuntimeError(f"{PAGE} has no place for the table")
    PAGE.write_text(before + begin + render(results, day, machine) + end + after)


def render(results: Results, day: str, machine: str) -> str:
    names = list(next(iter(results.values())))
    head = ["attack", *(f"{name}: {what}" for name in names for what in ("memory, MB", "longest wait", "log, KB"))]
    lines = [f"Measured on {day}, {machine}.\n", _row(head), _row(["---"] + ["---:"] * (len(head) - 1))]
    for attack, outcomes in results.items():
        cells = [attack.words.format(amount=f"{attack.full:,}")]
        for name in names:
            cells += _cells(outcomes[name])
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _cells(outcome: Outcome) -> list[str]:
    memory = " → ".join(
        f"{size / 1e6:,.0f}" for size in (outcome.before_bytes, outcome.peak_bytes, outcome.after_bytes)
    )
    wait = f"{outcome.longest_wait_s * 1000:,.0f} ms"
    if outcome.errors:
        wait += f", {outcome.errors:,} errors"
    if not outcome.alive:
        memory, wait = f"{memory}, **down**", f"{wait}, **no answer**"
    return [memory, wait, f"{outcome.log_bytes / 1000:,.0f}"]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
