"""`headrace schedule` with the pending view: lists, dry runs, and changes that are confirmed."""

import json
from typing import Any

import pytest

from tests.broker.cli.conftest import Run


@pytest.fixture
def reminders(headrace: Run) -> str:
    """A topic with two messages for alice and one for bob."""
    headrace("topic", "create", "reminders", "-c", "headrace.delay.enable=true")
    headrace("produce", "reminders", "--key", "alice", "--delay", "20m", "-H", "a=1", stdin="cake\n")
    headrace("produce", "reminders", "--key", "alice", "--delay", "10m", stdin="tea\n")
    headrace("produce", "reminders", "--key", "bob", "--cron", "0 8 * * *", "--tz", "Asia/Tokyo", stdin="up\n")
    return "reminders"


def pending(headrace: Run, *limits: str) -> dict[str, dict[str, Any]]:
    """What is pending: value -> document, in the order of the list."""
    found = json.loads(headrace("schedule", "list", "reminders", "--json", *limits).stdout)
    return {each["value"]: each for each in found}


def test_a_list_is_in_the_order_of_due_times(headrace: Run, reminders: str) -> None:
    found = pending(headrace)
    due = [each["due"] for each in found.values()]
    assert due == sorted(due)
    assert (found["tea"]["key"], found["up"]["cron"], found["up"]["cron_tz"]) == ("alice", "0 8 * * *", "Asia/Tokyo")
    assert {"name": "a", "value": "1"} in found["cake"]["headers"]
    table = headrace("schedule", "list", reminders).stdout.splitlines()
    assert table[0].split() == ["id", "due", "in", "key", "value", "repeats"]
    assert len(table) == 4


def test_a_list_is_limited_by_key_time_and_count(headrace: Run, reminders: str) -> None:
    assert list(pending(headrace, "--key", "alice")) == ["tea", "cake"]
    assert list(pending(headrace, "--key", "alice", "--due-after", "+15m")) == ["cake"]
    assert list(pending(headrace, "--key", "alice", "--due-before", "+15m")) == ["tea"]
    assert list(pending(headrace, "--key", "alice", "--limit", "1")) == ["tea"]
    limited = headrace("schedule", "list", reminders, "--key", "alice", "--limit", "1")
    assert limited.stderr == "1 more are pending\n"
    nothing = headrace("schedule", "list", reminders, "--key", "carol")
    assert nothing.stderr == "nothing is pending in reminders that matches\n"


def test_one_message_is_shown(headrace: Run, reminders: str) -> None:
    found = pending(headrace)["cake"]
    shown = headrace("schedule", "show", reminders, "--id", f"0:{found['id']}").stdout
    assert "alice" in shown
    assert "  a=1" in shown
    document = json.loads(headrace("schedule", "show", reminders, "--id", f"0:{found['id']}", "--json").stdout)
    assert document == found
    missing = headrace("schedule", "show", reminders, "--id", "0:4711", status=1)
    assert missing.stderr.startswith("headrace: topic reminders partition 0 has no pending message 4711: ")


def test_a_dry_run_changes_nothing(headrace: Run, reminders: str) -> None:
    before = pending(headrace)
    shown = headrace("schedule", "cancel", reminders, "--key", "alice", "--dry-run")
    assert shown.stderr == "dry run: nothing was changed, 2 messages would be cancelled\n"
    assert len(shown.stdout.splitlines()) == 3
    by_id = f"0:{before['tea']['id']}"
    moved = headrace("schedule", "move", reminders, "--id", by_id, "--delay", "1h", "--dry-run", "--json")
    document = json.loads(moved.stdout)
    assert (document["dry_run"], document["moved"], document["messages"]) == (True, 0, [before["tea"]])
    assert pending(headrace) == before


def test_a_change_of_several_messages_is_confirmed(headrace: Run, reminders: str) -> None:
    refused = headrace("schedule", "cancel", reminders, "--key", "alice", stdin="n\n", status=1)
    assert "Cancel 2 messages in reminders, due from " in refused.stderr
    assert len(pending(headrace)) == 3
    done = headrace("schedule", "cancel", reminders, "--key", "alice", stdin="y\n")
    assert done.stdout.endswith("cancelled 2 messages\n")
    assert list(pending(headrace)) == ["up"]


def test_a_change_of_one_message_is_not_confirmed(headrace: Run, reminders: str) -> None:
    assert headrace("schedule", "cancel", reminders, "--key", "bob").stdout == "cancelled 1 message\n"
    assert headrace("schedule", "cancel", reminders, "--key", "bob").stdout == "cancelled 0 messages\n"


def test_a_time_is_moved(headrace: Run, reminders: str) -> None:
    limits = ["--key", "alice", "--due-before", "+30m"]
    done = headrace("schedule", "move", reminders, *limits, "--delay", "1h", "--yes", "--json")
    assert json.loads(done.stdout)["moved"] == 2
    assert list(pending(headrace, *limits)) == []
    assert set(pending(headrace, "--key", "alice", "--due-after", "+30m")) == {"tea", "cake"}
