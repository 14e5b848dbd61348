"""Every text file here is a story with its expected outcome; see group_story.py for the commands, and
transaction_story.py for those in transactions/.

After a wanted change of behaviour, `HEADRACE_REWRITE=1 pytest tests/scenarios` writes down what is seen now; read the
difference before it is committed.
"""

import os
from pathlib import Path

import pytest

from sim.loop import run
from tests.scenarios.group_story import GroupStory
from tests.scenarios.transaction_story import TransactionStory

HERE = Path(__file__).parent
PLAYERS = {HERE: GroupStory, HERE / "transactions": TransactionStory}
STORIES = [path for folder in PLAYERS for path in sorted(folder.glob("*.txt"))]
DASHES = "----"
SEED = 1


def blocks(text: str) -> list[str]:
    return [block for block in text.rstrip("\n").split("\n\n") if block.strip()]


async def played(story: GroupStory | TransactionStory, text: str) -> str:
    """The story with what is seen now."""
    told = []
    for block in blocks(text):
        lines = block.splitlines()
        if DASHES not in lines:
            told.append(block)  # a remark
            continue
        before = lines[: lines.index(DASHES)]
        commands = [line for line in before if not line.startswith("#")]
        told.append("\n".join([*before, DASHES, *await story.play(commands)]))
    await story.end()
    return "\n\n".join(told) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.relative_to(HERE).with_suffix("").as_posix())
def test_story_ends_as_told(path: Path) -> None:
    expected = path.read_text()
    seen = run(played(PLAYERS[path.parent](), expected), SEED, limit_s=100 * 86_400)
    if os.environ.get("HEADRACE_REWRITE"):
        path.write_text(seen)
    assert seen == expected
