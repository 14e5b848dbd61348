"""The parts of the soak: which tests have a long form, and how long each part takes. Run as `make soak PART=name`.

A part is a list of tests, as beginnings of their ids, in tests/budgets.toml. tests/conftest.py leaves out every other
test when HEADRACE_SOAK=1, and with HEADRACE_SOAK_PART those of other parts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent


class Part(NamedTuple):
    soak_seconds: int
    tests: tuple[str, ...]
    long_only: bool  # there is no short form: `make test` leaves these tests out

    def has(self, test: str) -> bool:
        """Whether the test with this id, counted from tests/, is one of this part."""
        return test.startswith(self.tests)


def read_parts() -> dict[str, Part]:
    budgets = tomllib.loads((TESTS / "budgets.toml").read_text())
    return {
        name: Part(part["soak_seconds"], tuple(part["tests"]), part.get("long_only", False))
        for name, part in budgets["parts"].items()
    }


def run(name: str, part: Part) -> int:
    """Run one part; pytest's status."""
    files = sorted({f"tests/{test.partition('::')[0]}" for test in part.tests})
    print(f"soak: {name}, about {part.soak_seconds // 60} minutes", flush=True)
    command = [sys.executable, "-m", "pytest", "-o", "faulthandler_timeout=0", *files]
    environment = os.environ | {"HEADRACE_SOAK": "1", "HEADRACE_SOAK_PART": name}
    return subprocess.run(command, cwd=TESTS.parent, env=environment, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    parts = read_parts()
    if not arguments:
        for name, part in parts.items():
            print(f"make soak PART={name:<16} about {part.soak_seconds // 60:2} minutes: {', '.join(part.tests)}")
        print(
            f"make soak PART=all              about {sum(part.soak_seconds for part in parts.values()) // 60} minutes"
        )
        return 0
    unknown = [name for name in arguments if name not in (*parts, "all")]
    if unknown:
        print(f"there is no part {', '.join(unknown)}; there are: {', '.join(parts)}, all", file=sys.stderr)
        return 2
    wanted = parts if "all" in arguments else {name: parts[name] for name in arguments}
    return max([run(name, part) for name, part in wanted.items()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
