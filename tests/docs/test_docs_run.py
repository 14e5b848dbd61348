"""Every command and every piece of Python in the README and the docs works, typed in the order of the page.

The README's output is compared too, for newcomers compare it; on other pages output is an illustration, since where
records land and how old they are differs from run to run.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing.local_broker import LocalBroker
from tests.conftest import SOAKING

from .page import Step, agrees, steps

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
# Its commands run in tests/broker/cli/test_documented_examples.py, which starts no interpreter for each of them.
RUN_ELSEWHERE = set() if SOAKING else {"cli.md"}
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if steps(page) and page.name not in RUN_ELSEWHERE
]
PATIENCE_S = 300  # a first query of Spark on a busy machine takes its time
OUTSIDE = ("git", "cd", "pip", "apt-get", "sudo")  # they change the reader's machine


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_does_what_it_says(page: Path, broker: LocalBroker, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "data").symlink_to(broker.data)
    for step in steps(page):
        complaint = run(step, folder, broker.bootstrap, compare=page.name == "README.md")
        assert complaint is None, f"{page.relative_to(ROOT)}:{step.line}: {step.text}\n{complaint}"


def run(step: Step, folder: Path, bootstrap: str, compare: bool) -> str | None:
    """Do what the page says; what is wrong, or None."""
    text = re.sub(r"(127\.0\.0\.1|localhost):9092", bootstrap, step.text)
    if step.kind == "python":
        if re.search(r"^def test_", text, re.MULTILINE):
            (folder / "test_page.py").write_text(text)
            return finished(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"], folder, ""
            )
        return finished([sys.executable, "-c", text], folder, bootstrap)
    words = text.split()
    if words[:2] in (["headrace", "serve"], ["headrace", "up"]):  # they do not end
        return unknown_options(words)
    if words[0] == "make":
        return unknown_targets(words[1:])
    if words[0] in OUTSIDE or not (shutil.which(words[0]) or (BIN / words[0]).exists()):
        return None
    return finished(["bash", "-o", "pipefail", "-c", text], folder, bootstrap, step.shown if compare else "")


def finished(command: list[str], folder: Path, bootstrap: str, shown: str = "") -> str | None:
    environment = os.environ | {
        "HEADRACE_BROKER": bootstrap,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "160",
    }
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=PATIENCE_S, check=False, text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        return f"it did not end; give it an end, such as --exit or --count. It printed:\n{expired.output}"
    if done.returncode:
        return f"it ended with {done.returncode} and printed:\n{done.stdout}"
    if shown and not agrees(shown, done.stdout):
        return f"the page shows:\n{shown}\nit printed:\n{done.stdout}"
    return None


def unknown_options(words: list[str]) -> str | None:
    known = subprocess.run([BIN / "headrace", words[1], "--help"], check=True, capture_output=True, text=True).stdout
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"headrace {words[1]} has no {', '.join(unknown)}" if unknown else None


def unknown_targets(targets: list[str]) -> str | None:
    makefile = (ROOT / "Makefile").read_text()
    unknown = [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)]
    return f"the Makefile has no {', '.join(unknown)}" if unknown else None
