"""The front door: instant, with examples on every page, and one line for everything that goes wrong."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from headrace.cli.main import app

HEADRACE = Path(sys.executable).with_name("headrace")
PATIENCE_S = 60
HEAVY = ("confluent_kafka", "rich", "headrace.server", "kio", "uvloop", "prometheus_client", "pyspark")


def command_paths() -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []

    def visit(command: Any, path: tuple[str, ...]) -> None:
        paths.append(path)
        for name, child in getattr(command, "commands", {}).items():
            visit(child, (*path, name))

    visit(typer.main.get_command(app), ())
    return paths


@pytest.mark.parametrize("path", command_paths(), ids=" ".join)
def test_every_help_page_ends_with_examples_that_are_commands(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"])
    assert shown.exit_code == 0
    _, _, lines = shown.stdout.partition("Examples:\n")
    assert lines.strip()
    for line in lines.strip().splitlines():
        assert line.strip().startswith("$ ")
        assert " ".join(("headrace", *path)) in line


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from headrace.cli.main import app; app(['--help'], standalone_mode=False); "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_broker_that_is_not_there_is_one_clear_line() -> None:
    with socket.socket() as reserved:  # bound but not listening: nobody answers there, and nobody else takes the port
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        for command in (["topic", "list"], ["cluster", "info"], ["group", "list"], ["consume", "t"], ["produce", "t"]):
            done = subprocess.run(
                [HEADRACE, *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                env={**os.environ, "HEADRACE_BROKER": address},
                check=False,
            )
            assert done.returncode == 1
            assert done.stdout == ""
            assert done.stderr.startswith(f"headrace: no broker answers at {address}: is `headrace serve` running?")
            assert done.stderr.count("\n") == 1


def test_a_listener_that_is_no_broker_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        shown = CliRunner().invoke(app, ["topic", "list", "--broker", address])
    assert shown.exit_code == 1
    assert f"something listens at {address}, but does not answer as a Kafka broker" in shown.stderr
    assert shown.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topic", "list", "--broker", "nonsense"], "'nonsense' is not HOST:PORT"),
        (["serve", "--listen", "nonsense"], "'nonsense' is not HOST:PORT"),
        (["topic", "create", "t", "-c", "nonsense"], "'nonsense' is not a topic setting"),
        (["topic", "trim", "t"], "one of --before, --before-time and --all"),
        (["topic", "trim", "t", "--all", "--before", "3"], "one of --before, --before-time and --all"),
        (["topic", "alter", "t"], "nothing to change"),
        (["consume", "t", "--format", "%q"], "%q in '%q' is not a field"),
        (["consume", "t", "--from", "nowhere"], "'nowhere' is not a place in a log"),
        (["consume", "t", "--group", "g", "--partition", "0"], "a group reads all partitions"),
        (["consume", "t", "--group", "g", "--from", "offset:3"], "a group reads all partitions"),
        (["produce", "t", "--timestamp", "yesterday"], "'yesterday' is not a time"),
        (["produce", "t", "--header", "nonsense"], "'nonsense' is not a header"),
        (["produce", "t", "--whole", "--null-delimited"], "only one of --whole"),
        (["group", "seek", "g", "--to", "nowhere"], "'nowhere' is not a place in a log"),
    ],
)
def test_a_usage_error_is_found_before_any_broker_is_asked(arguments: list[str], words: str) -> None:
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 2
    assert words in " ".join(shown.stderr.split())
