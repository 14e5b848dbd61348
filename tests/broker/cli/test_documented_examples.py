"""Every example in docs/cli.md runs, in the order of the page."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

from tests.broker.cli.conftest import HEADRACE, PATIENCE_S, Done, Run, environment

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def documented_commands() -> list[str]:
    """The lines that start with `$ ` inside ```console blocks."""
    blocks = PAGE.read_text().split("```console\n")[1:]
    lines = [line for block in blocks for line in block.split("```")[0].splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def run_in_shell(command: str, env: dict[str, str]) -> Done:
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**env, "PATH": f"{HEADRACE.parent}:{env['PATH']}"},
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_every_console_example_of_the_page_runs(broker: Any, headrace: Run) -> None:
    commands = documented_commands()
    assert len(commands) > 20
    for command in commands:
        if "|" in command:
            done = run_in_shell(command, environment(broker))
            assert done.status == 0, (command, done)
        else:
            program, *arguments = shlex.split(command)
            assert program == "headrace"
            headrace(*arguments)
