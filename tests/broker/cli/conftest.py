"""The command line as a user runs it, against the test's own broker.

`produce` and `consume` need real pipes and run as the installed script; the other commands run in the test's process,
which saves the start of an interpreter for each of them.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app

HEADRACE = Path(sys.executable).with_name("headrace")
PATIENCE_S = 60


class Done(NamedTuple):
    status: int
    stdout: str
    stderr: str


Run = Callable[..., Done]
Start = Callable[..., "subprocess.Popen[bytes]"]


def environment(broker: Any) -> dict[str, str]:
    return {**os.environ, "HEADRACE_BROKER": broker.bootstrap}


@pytest.fixture
def headrace(broker: Any) -> Run:
    """Runs `headrace` with these arguments against the test's broker, and expects `status`."""

    def run(*arguments: str, stdin: str = "", status: int = 0) -> Done:
        through_pipes = arguments[0] in ("produce", "consume")
        done = (run_script if through_pipes else run_here)(arguments, stdin, environment(broker))
        assert done.status == status, (arguments, done)
        return done

    return run


def run_script(arguments: tuple[str, ...], stdin: str, env: dict[str, str]) -> Done:
    done = subprocess.run(
        [HEADRACE, *arguments], input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, env=env, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_here(arguments: tuple[str, ...], stdin: str, env: dict[str, str]) -> Done:
    done = CliRunner().invoke(app, list(arguments), input=stdin, env=env, catch_exceptions=False)
    return Done(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def start_headrace(broker: Any) -> Any:
    """Starts `headrace` and leaves it running; what the test did not end is killed after it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [HEADRACE, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=environment(broker)
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=PATIENCE_S)
