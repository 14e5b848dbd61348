"""`headrace produce --delay`, `--at` and `--cron`, cancels and moves by id, and the programs of examples/."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cli.conftest import PATIENCE_S, Run, environment
from tests.clients.patience import until

Start = Callable[..., Any]
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def topic(headrace: Run) -> str:
    headrace("topic", "create", "reminders", "-c", "headrace.delay.enable=true")
    return "reminders"


def read(headrace: Run, topic: str, count: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in headrace("consume", topic, "-n", str(count), "--json").stdout.splitlines()]


def header(message: dict[str, Any], name: str) -> str | None:
    return next((each["value"] for each in message["headers"] if each["name"] == name), None)


def test_delayed_messages_have_ids_and_come_when_they_are_due(broker: Any, headrace: Run, topic: str) -> None:
    done = headrace("produce", topic, "--delay", "10m", "-H", "a=1", stdin="tea\ncake\n")
    ids = done.stdout.split()
    assert done.stderr == "scheduled 2 messages in reminders\n"
    assert len(ids) == 2
    document = json.loads(headrace("produce", topic, "--at", "+20m", "--json", stdin="later\n").stdout)
    ids += document["scheduled"]
    assert headrace("consume", topic, "--exit").stdout == ""
    broker.clock.advance(hours=1)
    found = read(headrace, topic, 3)
    assert [message["value"] for message in found] == ["tea", "cake", "later"]
    assert [f"0:{header(message, 'headrace.scheduled.id')}" for message in found] == ids
    assert (header(found[0], "a"), header(found[0], "headrace.delay-ms")) == ("1", None)


def test_a_recurring_message_comes_again(broker: Any, headrace: Run, topic: str) -> None:
    headrace("produce", topic, "--cron", "0 * * * *", "--tz", "Europe/Berlin", stdin="report\n")
    for count in (1, 2):
        broker.clock.advance(hours=1)
        assert [message["value"] for message in read(headrace, topic, count)] == ["report"] * count


def test_ids_are_cancelled_and_moved(broker: Any, headrace: Run, topic: str) -> None:
    tea, cake, soup = headrace("produce", topic, "--delay", "10m", stdin="tea\ncake\nsoup\n").stdout.split()
    assert headrace("schedule", "cancel", topic, "--id", tea).stdout == f"cancelled {tea}\n"
    again = headrace("schedule", "cancel", topic, "--id", tea, status=1)
    assert again.stderr.startswith(f"headrace: topic reminders partition 0 has no pending message {tea[2:]}: it was")
    assert headrace("schedule", "move", topic, "--id", soup, "--delay", "2h").stdout == f"moved {soup}\n"
    assert headrace("schedule", "move", topic, "--id", tea, "--at", "+2h", status=1).stdout == ""
    asked = headrace("schedule", "cancel", topic, "--id", tea, "--id", cake, stdin="n\n", status=1)
    assert f"Cancel {tea}, {cake} in reminders?" in asked.stderr
    some = headrace("schedule", "cancel", topic, "--id", tea, "--id", cake, "--yes", "--json", status=1)
    assert json.loads(some.stdout) == {"topic": topic, "dry_run": False, "cancelled": 1, "ids": [cake]}
    broker.clock.advance(days=1)
    assert [message["value"] for message in read(headrace, topic, 1)] == ["soup"]


@pytest.fixture
def run_example(broker: Any) -> Any:
    """Starts a program of examples/; it is killed after the test if it has not ended."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(EXAMPLES / name), *arguments]
        program = subprocess.Popen(command, env=environment(broker), stdout=subprocess.PIPE, text=True)
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
        program.communicate(timeout=PATIENCE_S)


def test_the_reminder_reminds(broker: Any, run_example: Start) -> None:
    program = run_example("remind_me.py", "drink some water", "--in", "10m")
    assert program.stdout.readline().endswith("comes in 10m; Ctrl-C cancels it\n")
    broker.clock.advance(minutes=11)
    assert program.stdout.readline() == "reminder: drink some water\n"
    assert program.wait(PATIENCE_S) == 0


def test_a_reminder_is_cancelled_by_ctrl_c(broker: Any, headrace: Run, run_example: Start) -> None:
    program = run_example("remind_me.py", "drink some water")
    line = program.stdout.readline()
    program.send_signal(signal.SIGINT)
    assert program.stdout.readline() == "cancelled\n"
    assert program.wait(PATIENCE_S) == 0
    again = headrace("schedule", "cancel", "reminders", "--id", line.split()[1], status=1)
    assert "has no pending message" in again.stderr


def test_the_report_comes_every_hour(broker: Any, headrace: Run, run_example: Start) -> None:
    headrace("topic", "create", "orders", "-c", "message.timestamp.after.max.ms=86400000")
    this_hour_ms = int(time.time()) // 3600 * 3_600_000
    for hour in (this_hour_ms, this_hour_ms + 3_600_000):  # the full hour may come before the clock is set
        headrace("produce", "orders", "--timestamp", str(hour + 1_800_000), stdin="a\nb\nc\n")
    program = run_example("hourly_report.py", "orders", "--count", "1")
    until("the clock to be set", lambda: clock_is_set(headrace))
    broker.clock.advance(hours=1)
    assert program.stdout.readline().endswith("orders: 3 messages in the hour before\n")
    assert program.wait(PATIENCE_S) == 0


def clock_is_set(headrace: Run) -> bool:
    """Whether the program has sent its recurring message; it may not have created the topic yet."""
    topics = json.loads(headrace("topic", "list", "--json").stdout)
    if not any(each["topic"] == "report-clock" for each in topics):
        return False
    (described,) = json.loads(headrace("topic", "describe", "report-clock", "--json").stdout)
    return bool(described["partitions"][0]["end"] > 0)
