"""What a page of the docs asks its reader to type, and what it says will be seen.

In a ```console block a line that starts with `$ ` is a command (a backslash at its end continues it) and the lines
below it are its output. There, … stands for anything, and ids, addresses and time spans may be others. A ```python
block is a script, or a test module if it defines tests. Blocks of any other kind are only for reading.
"""

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Step:
    line: int
    kind: str  # console or python
    text: str
    shown: str  # the output that the page shows; empty if it shows none


def steps(page: Path) -> list[Step]:
    """Everything on the page that can be run, in its order."""
    text = page.read_text()
    found: list[Step] = []
    for block in BLOCK.finditer(text):
        first_line = text.count("\n", 0, block.start()) + 2
        if block[1] == "python":
            found.append(Step(first_line, "python", block[2], ""))
        else:
            found += commands(block[2], first_line)
    return found


def commands(block: str, first_line: int) -> list[Step]:
    found: list[Step] = []
    for number, line in enumerate(block.splitlines(), first_line):
        if line.startswith("$ "):
            found.append(Step(number, "console", line[2:], ""))
            continue
        assert found, f"line {number}: a console block starts with a command: `$ …`"
        last = found[-1]
        if last.text.endswith("\\"):
            found[-1] = Step(last.line, last.kind, f"{last.text[:-1]}{line.strip()}", "")
        else:
            found[-1] = Step(last.line, last.kind, last.text, f"{last.shown}{line}\n")
    return found


VOLATILE = re.compile(r"(?<!\S)([\w/+-]{22}|\S+:\d{2,5}|\d+(ms|s|m))(?!\S)")  # ids, addresses, time spans


def agrees(shown: str, printed: str) -> bool:
    """Whether the output on the page is the output that came; blanks, ids, addresses and time spans may differ."""
    pattern = ".*?".join(map(re.escape, words(shown).split("…")))
    return re.fullmatch(pattern, words(printed), re.DOTALL) is not None


def words(text: str) -> str:
    return VOLATILE.sub("~", " ".join(text.split()))
