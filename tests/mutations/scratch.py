"""A copy of the package in which one line of a source file is replaced, compiled code included, and tests run on it.

A rule of compiled code cannot be exchanged in a running module. So the package is copied with the tests that it needs,
the line is replaced there, the compiled module is built anew from its .pyx (with Cython and the C compiler, without
optimization: seconds), and pytest runs a test in a process that sees nothing but the copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "headrace",
    "sim",
    "tests/unit",
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/parts.py",
    "tests/budgets.toml",
    "pyproject.toml",
)
PATIENCE_S = 300
PASSED, FAILED = 0, 1  # pytest's
# A mutant may go on for ever, and take all memory meanwhile: it gets this much of the processor, and of memory.
CPU_S, MEMORY_BYTES = 90, 2 << 30
RUN = f"""
import resource
import sys
from pathlib import Path

resource.setrlimit(resource.RLIMIT_CPU, ({CPU_S}, {CPU_S}))
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))

import pytest

import headrace
assert Path(headrace.__file__).parents[1] == Path.cwd(), headrace.__file__
sys.exit(pytest.main(sys.argv[1:]))
"""


class Ran(NamedTuple):
    status: int
    output: str

    @property
    def found_a_failure(self) -> bool:
        """A test failed, or the process died: it read what is not its own, or went on for ever. Anything else that went
        wrong is a mistake of the mutation."""
        blunder = any(f"E   {error}" in self.output for error in ("NameError", "SyntaxError", "ImportError"))
        return (self.status == FAILED and not blunder) or self.status < 0


class Scratch:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source, copy = ROOT / name, folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.c"))
            else:
                shutil.copy2(source, copy)

    def replace(self, source: str, line: str, instead: str) -> None:
        path = self.folder / source
        text = path.read_text()
        found = text.count(line)
        assert found == 1, f"{source} has {found} times: {line!r}; change the mutation with it"
        path.write_text(text.replace(line, instead))

    def remove(self, module: str) -> None:
        """Leave this compiled module to its twin in Python."""
        for built in (self.folder / module).parent.glob(f"{Path(module).name}.*.so"):
            built.unlink()

    def build(self, module: str) -> None:
        """Compile `module` (headrace/log/_tail) from its .pyx."""
        self.remove(module)
        source = f"{module}.c"
        self._do([sys.executable, "-m", "cython", f"{module}.pyx", "-o", source])
        linked, shared = (sysconfig.get_config_var(name).split() for name in ("LDSHARED", "CCSHARED"))
        include = ["-I", sysconfig.get_path("include")]
        target = module + sysconfig.get_config_var("EXT_SUFFIX")
        self._do([*linked, *shared, "-O0", "-w", *include, source, "-o", target])

    def run(self, *tests: str) -> Ran:
        """What becomes of these tests, with the examples of `make test`, and without a search for shorter ones."""
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "HEADRACE_"))}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [sys.executable, "-c", RUN, "-x", "-rs", *tests],
            cwd=self.folder,
            env=environment | {"HEADRACE_FIRST_FAILURE": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout + done.stderr)

    def _do(self, command: Sequence[str]) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
