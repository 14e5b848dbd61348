"""Every example in docs/cli.md runs, in the order of the page."""

import subprocess
from pathlib import Path
from typing import Any

from tests.unit.cli.conftest import HEADRACE, PATIENCE_S, environment

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def documented_commands() -> list[str]:
    """The lines that start with `$ ` inside ```console blocks."""
    blocks = PAGE.read_text().split("```console\n")[1:]
    lines = [line for block in blocks for line in block.split("```")[0].splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def test_every_console_example_of_the_page_runs(broker: Any, tmp_path: Path) -> None:
    path = f"{HEADRACE.parent}:{environment(broker)['PATH']}"
    commands = documented_commands()
    assert len(commands) > 20
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={**environment(broker), "PATH": path},
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
