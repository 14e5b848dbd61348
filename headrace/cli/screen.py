"""Output of commands: JSON documents, tables, and remarks on stderr.

Called by every command that prints data. Invariant: stdout has data only, and output into a pipe is never truncated to
the width of a terminal. rich is loaded when the first table is drawn, not before.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import typer

PIPE_WIDTH = 10_000  # columns: wide enough that a table in a pipe never wraps


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> None:
    """A table with headings; columns named in `right` are right-aligned numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    on_terminal = sys.stdout.isatty()
    table = Table(box=SIMPLE_HEAD if on_terminal else None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    console = Console(file=sys.stdout, highlight=False, width=None if on_terminal else PIPE_WIDTH)
    console.print(table)


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """Name and value, one pair per line."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        typer.echo(f"{name:<{width}}  {cell(value)}")


def cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def remark(text: str) -> None:
    """A message for the user, on stderr, so that it does not mix with data on stdout."""
    typer.echo(text, err=True)


def plural(count: int, noun: str, ending: str = "s") -> str:
    """`1 message`, `2 messages`; `2 batches` with the ending es."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{ending}"
