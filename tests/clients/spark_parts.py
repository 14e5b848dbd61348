"""The two Spark parts of the compatibility run: our source and sink on Apache Kafka, and Spark's own on headrace.

Called by foreign.py after the clients have told their stories. A part that cannot be run here says why in one line; one
that fails gives the reason as a failure, like a story.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.peers import KafkaRecipe, Peer, PeerMissing
from bench.processes import Children
from tests.clients.shell import Stage
from tests.clients.suites import ROOT, say

DEADLINE_S = 1200.0
SPARK_TESTS = (
    "tests/unit/spark/test_sink_task.py",
    "tests/unit/spark/test_sink_commit.py",
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
    recipe = KafkaRecipe()
    with Children() as children:
        recipe.prepare(children)
        kafka = Peer(recipe, children, stage.folder / "kafka")
        kafka.format()
        kafka.start()
        return _ended([sys.executable, "-m", "pytest", *SPARK_TESTS], HEADRACE_BOOTSTRAP=kafka.address)


def sparks_connector_on_headrace(stage: Stage) -> list[str]:
    return _ended([sys.executable, "-m", "tests.clients.spark_connector_stories", stage.bootstrap])


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
]
