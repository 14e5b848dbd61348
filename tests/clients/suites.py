"""The clients of the compatibility table: how each is found, what it offers, and how its stories are told.

A suite that cannot be told here says why in `missing()`, in one line. Whatever a client leaves untold must be named:
`not_offered` when the client has no such function, `not_asked` when another column already proves it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.clients import java_suite, kafka_tool_stories, kcat_own_stories, kcat_stories
from tests.clients.shell import Script, Stage

ROOT = Path(__file__).parent.parent.parent
GO_PROJECT = Path(__file__).parent / "go"
SUITE_DEADLINE_S = 900.0
Outcomes = dict[str, list[str]]
TOLD = re.compile(r"^STORY (\S+) (PASS|FAIL)(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Suite:
    name: str
    version: Callable[[], str]
    missing: Callable[[], str | None]
    tell: Callable[[Stage], Outcomes]
    not_offered: frozenset[str] = frozenset()
    not_asked: frozenset[str] = frozenset()


def say(line: str) -> None:
    print(line, flush=True)


def installed(command: str, package: str) -> str | None:
    """Has the command, if need be from Debian's packages; else says what is missing."""
    if shutil.which(command):
        return None
    if shutil.which("apt-get") and os.geteuid() == 0:
        say(f"  installing {package} with apt-get")
        subprocess.run(["apt-get", "update", "-q"], capture_output=True, timeout=300, check=False)
        done = subprocess.run(["apt-get", "install", "-qy", package], capture_output=True, timeout=900, check=False)
        if done.returncode == 0 and shutil.which(command):
            return None
    return f"{command} is not on this machine: install the package {package}"


def pytest_suite(folder: str) -> Callable[[Stage], Outcomes]:
    def tell(stage: Stage) -> Outcomes:
        report = stage.folder / f"{folder}.json"
        environment = {**os.environ, "HEADRACE_BOOTSTRAP": stage.bootstrap, "HEADRACE_STORIES": str(report)}
        command = [sys.executable, "-m", "pytest", f"tests/clients/{folder}", "--tb=short"]
        subprocess.run(command, cwd=ROOT, env=environment, timeout=SUITE_DEADLINE_S, check=False)
        outcomes: Outcomes = json.loads(report.read_text()) if report.exists() else {}
        return outcomes

    return tell


def printed_stories(command: list[str], folder: Path, stage: Stage) -> Outcomes:
    """Runs a program that prints STORY lines; what it printed is shown when a story failed or none was told."""
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": stage.bootstrap}
    done = subprocess.run(
        command, cwd=folder, env=environment, timeout=SUITE_DEADLINE_S, capture_output=True, text=True, check=False
    )
    outcomes: Outcomes = {}
    for slug, verdict, why in TOLD.findall(done.stdout):
        outcomes.setdefault(slug, []).append("pass" if verdict == "PASS" else f"fail:{why}")
    if done.returncode != 0:
        say(done.stdout[-20_000:] + done.stderr[-5_000:])
    return outcomes


def java_stories(stage: Stage) -> Outcomes:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = ["java", "-Xmx256m", quiet, "-cp", java_suite.CLASSPATH, "headrace.Main", stage.bootstrap]
    return printed_stories(command, java_suite.PROJECT, stage)


def java_missing() -> str | None:
    return (
        installed("java", "default-jre-headless")
        or installed("javac", "default-jdk-headless")
        or installed("mvn", "maven")
        or java_suite.build()
    )


def go_stories(package: str) -> Callable[[Stage], Outcomes]:
    def tell(stage: Stage) -> Outcomes:
        return printed_stories(["go", "test", "-count=1", "-v", f"./{package}"], GO_PROJECT, stage)

    return tell


def go_missing() -> str | None:
    if not shutil.which("go"):
        return "go is not on this machine: install Go 1.21 or later (it fetches the version that go.mod names)"
    done = subprocess.run(["go", "mod", "download"], cwd=GO_PROJECT, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"go could not fetch the modules: {done.stderr.strip()[-300:]}"


def shell_stories(*scripts: Script) -> Callable[[Stage], Outcomes]:
    whole = Script([tale for script in scripts for tale in script.tales])
    return lambda stage: whole.tell(stage, say)


def kcat_version() -> str:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", said)
    return f"{found[1]} (librdkafka {found[2]})" if found else "unknown"


def kafka_version() -> str:
    found = re.search(r"<kafka.version>(.*)</kafka.version>", (java_suite.PROJECT / "pom.xml").read_text())
    return found[1] if found else "unknown"


def module_version(module: str) -> Callable[[], str]:
    def find() -> str:
        found = re.search(rf"{re.escape(module)} v(\S+)", (GO_PROJECT / "go.mod").read_text())
        return found[1] if found else "unknown"

    return find


NEW_PROTOCOL = frozenset({"new-protocol", "new-protocol-static", "new-protocol-regex", "protocol-move"})
JAVA_ONLY = frozenset({"streams"})
OWN_STORIES = frozenset({"delayed", "delayed-transactions", "cancelled", "scheduled", "views", "view-transactions"})
GROUP_STORIES = frozenset({"group-split", "group-leave", "range", "roundrobin", "sticky", "cooperative-sticky"})

SUITES = [
    Suite(
        "confluent-kafka",
        lambda: version("confluent-kafka"),
        lambda: None,
        pytest_suite("confluent"),
        not_offered=frozenset({"sticky", "delete-offsets", "transactions-admin"}) | JAVA_ONLY,
    ),
    Suite(
        "kafka-python",
        lambda: version("kafka-python"),
        lambda: None,
        pytest_suite("kafka_python"),
        not_offered=NEW_PROTOCOL | JAVA_ONLY,
    ),
    Suite(
        "aiokafka",
        lambda: version("aiokafka"),
        lambda: None,
        pytest_suite("aio"),
        not_offered=frozenset(
            {
                *("cooperative-sticky", "delete-group", "delete-offsets", "alter-offsets"),
                *("incremental-configs", "list-offsets", "transactions-admin"),
            }
        )
        | NEW_PROTOCOL
        | JAVA_ONLY,
    ),
    Suite("Java client", kafka_version, java_missing, java_stories),
    Suite("franz-go", module_version("github.com/twmb/franz-go"), go_missing, go_stories("franz"), JAVA_ONLY),
    Suite(
        "kafka-go",
        module_version("github.com/segmentio/kafka-go"),
        go_missing,
        go_stories("kafkago"),
        not_offered=frozenset(
            {
                *("idempotence", "sticky", "cooperative-sticky", "static-member", "regex", "pause", "delete-records"),
                *("list-offsets", "recreated-topic", "transactions", "transactions-admin", "delayed-transactions"),
                "view-transactions",
            }
        )
        | NEW_PROTOCOL
        | JAVA_ONLY,
    ),
    Suite(
        "Sarama",
        module_version("github.com/IBM/sarama"),
        go_missing,
        go_stories("sarama"),
        not_offered=frozenset({"cooperative-sticky", "regex", "list-offsets", "transactions-admin"})
        | NEW_PROTOCOL
        | JAVA_ONLY,
    ),
    Suite(
        "kcat",
        kcat_version,
        lambda: installed("kcat", "kcat"),
        shell_stories(kcat_stories.script, kcat_own_stories.script),
        not_offered=frozenset(
            {
                *("pause", "sticky", "cooperative-sticky", "describe-groups", "delete-group", "delete-offsets"),
                *("alter-offsets", "topic-errors", "partitions", "configs", "incremental-configs", "delete-records"),
                *("list-offsets", "recreated-topic", "topics", "transactional-offsets", "transactions-admin"),
            }
        )
        | NEW_PROTOCOL
        | JAVA_ONLY,
    ),
    Suite(
        "Kafka tools",
        kafka_version,
        java_missing,
        shell_stories(kafka_tool_stories.script),
        not_offered=frozenset({"pause"}) | JAVA_ONLY,
        not_asked=GROUP_STORIES
        | NEW_PROTOCOL
        | {"static-member", "regex", "partition-growth", "key-order", "partitioning", "oversize", "recreated-topic"}
        | {"fencing", "dropped-records"}
        | OWN_STORIES,
    ),
]
