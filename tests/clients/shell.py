"""Stories told by command-line tools: run a command, look at what it printed.

`kcat_stories.py` and `kafka_tool_stories.py` fill a `Script` each; the compatibility run tells them. A command that
fails or that takes too long is a failed story, with what it printed as the reason.
"""

import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.patience import until
from tests.clients.stories import STORIES

COMMAND_DEADLINE_S = 60.0


class StoryFailed(Exception):
    """A tool did not do what the story says."""


@dataclass
class Stage:
    """One broker to talk to, a folder for files, and what has to be there before a tool can show something."""

    bootstrap: str
    folder: Path

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def unique(self, kind: str) -> str:
        return f"shell.{kind}.{uuid.uuid4().hex[:8]}"

    def topic(self, partitions: int = 1, name: str = "", **config: str) -> str:
        name = name or self.unique("topic")
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=dotted)])[name].result(30)
        # Kafka answers before every broker has heard of the topic.
        until(f"{name} is known", lambda: name in self.admin.list_topics(timeout=10).topics)
        return name

    def fill(self, topic: str, values: Sequence[str], partition: int = 0, start_ms: int = 0, step_ms: int = 0) -> None:
        """Puts messages into a partition, with timestamps of their own where `start_ms` is given."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=partition, timestamp=start_ms + number * step_ms)
        if producer.flush(30):
            raise StoryFailed(f"could not fill {topic}")

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def run(self, *command: str, stdin: str | bytes = "", fails: bool = False) -> str:
        """What the command printed; with `fails` it must end with an error, and what it said of it is returned too."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        try:
            done = subprocess.run(
                command,
                input=given,
                capture_output=True,
                timeout=COMMAND_DEADLINE_S,
                check=False,
                cwd=self.folder,
            )
        except subprocess.TimeoutExpired as expired:
            printed = (expired.output or b"").decode(errors="replace")
            raise StoryFailed(f"{' '.join(command)} took over {COMMAND_DEADLINE_S:g} s: {printed[-500:]}") from None
        printed, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if (done.returncode != 0) != fails:
            raise StoryFailed(f"{' '.join(command)} ended with {done.returncode}: {(errors + printed)[-800:]}")
        return errors + printed if fails else printed


def expect(wanted: object, seen: object) -> None:
    if wanted != seen:
        raise StoryFailed(f"wanted {wanted!r}, saw {seen!r}")


def expect_in(wanted: str, seen: str) -> None:
    if wanted not in seen:
        raise StoryFailed(f"wanted {wanted!r} in {seen[-800:]!r}")


Tale = Callable[[Stage], None]


@dataclass
class Script:
    """The stories of one tool, in the order in which they were written down."""

    tales: list[tuple[str, Tale]] = field(default_factory=list)

    def story(self, *slugs: str) -> Callable[[Tale], Tale]:
        unknown = set(slugs) - set(STORIES)
        if unknown:
            raise ValueError(f"no such stories: {', '.join(unknown)}; tests/clients/stories.py lists them")

        def add(tale: Tale) -> Tale:
            self.tales.extend((slug, tale) for slug in slugs)
            return tale

        return add

    def tell(self, stage: Stage, say: Callable[[str], None]) -> dict[str, list[str]]:
        """Tells all of them; a tale that proves several stories is told once."""
        told: dict[Tale, str] = {}
        outcomes: dict[str, list[str]] = {}
        for slug, tale in self.tales:
            if tale not in told:
                began = time.monotonic()
                try:
                    tale(stage)
                    told[tale] = "pass"
                except Exception as problem:
                    # Whatever breaks a tale is the finding of this run; the other tales are still told.
                    told[tale] = f"fail: {tale.__name__}: {problem}"
                say(f"  {tale.__name__}: {told[tale]} ({time.monotonic() - began:.1f} s)")
            outcomes.setdefault(slug, []).append(told[tale])
        return outcomes
