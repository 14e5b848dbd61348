"""The parts of the compatibility run that are no client's column: Spark both ways, what Apache Kafka answers to batches
that are no good, and the move from it.

Called by foreign.py after the clients have told their stories. A part that cannot be run here says why in one line; one
that fails gives the reason as a failure, like a story.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers import KafkaRecipe, Peer, PeerMissing
from bench.processes import Children
from headrace.wire.errors import ErrorCode
from tests.clients import mirror_stories
from tests.clients.shell import Stage
from tests.clients.suites import ROOT, java_missing, say
from tests.sending import answers
from tests.unit.wire.bad_batches import CASES

DEADLINE_S = 1200.0
SPARK_TESTS = (
    "tests/broker/spark/sink/test_task.py",
    "tests/broker/spark/sink/test_commit.py",
    "tests/spark/test_source.py",
    "tests/spark/test_sink.py",
)


@dataclass(frozen=True)
class Part:
    name: str
    run: Callable[[Stage], list[str]]  # failures


def tell(part: Part, stage: Stage) -> list[str]:
    say(part.name)
    try:
        failures = part.run(stage)
    except PeerMissing as missing:
        say(f"{part.name}: not run: {missing}")
        return []
    say(f"{part.name}: {len(failures)} failures")
    return failures


def source_and_sink_on_kafka(stage: Stage) -> list[str]:
    """The same tests that `make test` runs on headrace."""
    with apache_kafka(stage.folder / "kafka") as kafka:
        return _ended([sys.executable, "-m", "pytest", *SPARK_TESTS], HEADRACE_BOOTSTRAP=kafka.address)


def sparks_connector_on_headrace(stage: Stage) -> list[str]:
    return _ended([sys.executable, "-m", "tests.clients.spark_connector_stories", stage.bootstrap])


def bad_batches_on_kafka(stage: Stage) -> list[str]:
    """That Apache Kafka answers as docs/records.md says."""
    with apache_kafka(stage.folder / "bad") as kafka:
        found = [ErrorCode(answer.error_code) for answer in answers(kafka.port)]
    pairs = zip(CASES, found, strict=True)
    return [f"{case.what}: {code.name}, not {case.kafka.name}" for case, code in pairs if code is not case.kafka]


def mirror_maker(stage: Stage) -> list[str]:
    missing = java_missing()
    if missing:
        raise PeerMissing(missing)
    with apache_kafka(stage.folder / "moved") as kafka:
        try:
            mirror_stories.tell(kafka, stage)
        except Exception as problem:  # whatever breaks it is the finding of this run
            return [f"{type(problem).__name__}: {problem}"]
    return []


@contextmanager
def apache_kafka(folder: Path) -> Iterator[Peer]:
    recipe = KafkaRecipe()
    with Children() as children:
        recipe.prepare(children)
        kafka = Peer(recipe, children, folder)
        kafka.format()
        kafka.start()
        yield kafka


def _ended(command: list[str], **environment: str) -> list[str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths, **environment}, timeout=DEADLINE_S,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return []
    say(done.stdout[-20_000:])
    return [f"{Path(command[2]).name} ended with {done.returncode}"]


PARTS = [
    Part("headrace's Spark source and sink on Apache Kafka", source_and_sink_on_kafka),
    Part("Spark's own Kafka connector on headrace", sparks_connector_on_headrace),
    Part("Batches that are no good, on Apache Kafka", bad_batches_on_kafka),
    Part("MirrorMaker 2 from Apache Kafka to headrace", mirror_maker),
]
