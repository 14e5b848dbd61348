"""`headrace group` against a real broker."""

import json
from typing import Any

import pytest

from tests.broker.cli.conftest import Run, Start


@pytest.fixture
def billing(headrace: Run) -> Run:
    """A topic with five messages, three of them two hours old, of which the group billing has read one."""
    headrace("topic", "create", "orders")
    headrace("produce", "orders", "--timestamp", "-2h", stdin="0\n1\n2\n")
    headrace("produce", "orders", stdin="3\n4\n")
    headrace("consume", "orders", "-g", "billing", "-n", "1")
    return headrace


def described(headrace: Run, group: str = "billing") -> dict[str, Any]:
    (document,) = json.loads(headrace("group", "describe", group, "--json").stdout)
    assert isinstance(document, dict)
    return document


def test_lag_is_told_in_messages_and_in_seconds(billing: Run) -> None:
    group = described(billing)
    (row,) = group["partitions"]
    assert (row["topic"], row["partition"], row["committed"], row["end"], row["lag"]) == ("orders", 0, 1, 5, 4)
    assert 7200 <= row["lag_seconds"] < 7200 + 600
    assert (group["lag"], group["lag_seconds"]) == (4, row["lag_seconds"])
    assert "4 messages, 2h" in billing("group", "describe", "billing").stdout


def test_a_group_that_has_read_all_is_not_behind(billing: Run) -> None:
    billing("consume", "orders", "-g", "billing", "-e")
    assert (described(billing)["lag"], described(billing)["lag_seconds"]) == (0, 0)


def test_messages_that_were_trimmed_are_not_lag(billing: Run) -> None:
    billing("topic", "trim", "orders", "--before", "3")
    group = described(billing)
    assert group["lag"] == 2
    assert group["lag_seconds"] < 600


def test_groups_are_listed_and_deleted(billing: Run) -> None:
    (listed,) = json.loads(billing("group", "list", "--json").stdout)
    assert (listed["group"], listed["state"]) == ("billing", "empty")
    asked = billing("group", "delete", "billing", stdin="n\n", status=1)
    assert "Delete billing and all offsets?" in asked.stderr
    billing("group", "delete", "billing", "--yes")
    assert json.loads(billing("group", "list", "--json").stdout) == []


def test_a_dry_run_finds_each_kind_of_place_and_moves_nothing(billing: Run) -> None:
    for place, offset in (
        ("start", 0),
        ("end", 5),
        ("offset:4", 4),
        ("offset:99", 5),
        ("offset:-2", 3),
        ("time:-1h", 3),
        ("time:now", 5),
        ("shift:2", 3),
        ("shift:-9", 0),
    ):
        seen = json.loads(billing("group", "seek", "billing", "--to", place, "--dry-run", "--json").stdout)
        assert seen["partitions"] == [{"topic": "orders", "partition": 0, "from": 1, "to": offset}], place
    assert described(billing)["partitions"][0]["committed"] == 1


def test_a_group_goes_on_from_where_it_was_moved_to(billing: Run) -> None:
    billing("group", "seek", "billing", "--to", "time:-1h")
    assert described(billing)["partitions"][0]["committed"] == 3
    assert billing("consume", "orders", "-g", "billing", "-e").stdout == "3\n4\n"


def test_seek_touches_only_the_partition_that_it_is_told(headrace: Run) -> None:
    headrace("topic", "create", "orders", "-p", "2")
    for partition in ("0", "1"):
        headrace("produce", "orders", "-p", partition, stdin="a\nb\n")
    headrace("group", "seek", "audit", "--topic", "orders", "--to", "end")
    headrace("group", "seek", "audit", "--topic", "orders:1", "--to", "start")
    assert [row["committed"] for row in described(headrace, "audit")["partitions"]] == [2, 0]


def test_an_active_group_shows_its_members_and_is_not_moved(billing: Run, start_headrace: Start) -> None:
    member = start_headrace("consume", "orders", "-g", "billing")
    assert member.stdout is not None
    assert member.stdout.readline() == b"1\n"
    group = described(billing)
    (shown,) = group["members"]
    assert group["state"] == "stable"
    assert group["protocol"] == "range"
    assert group["coordinator"]
    assert "127.0.0.1" in shown["host"]
    assert shown["client"] == "headrace-cli"
    assert shown["partitions"] == ["orders:0"]
    assert group["partitions"][0]["member"] == shown["member"]
    refused = billing("group", "seek", "billing", "--to", "start", status=1)
    assert "group billing is stable with 1 member: stop its consumers first" in refused.stderr
    refused = billing("group", "delete", "billing", "--yes", status=1)
    assert "group billing has 1 member" in refused.stderr


def test_refusals_name_the_group_in_one_line(headrace: Run) -> None:
    headrace("topic", "create", "orders")
    for arguments, words in (
        (["describe", "nobody"], "group nobody does not exist"),
        (["delete", "nobody", "--yes"], "group nobody does not exist"),
        (["seek", "nobody", "--to", "start"], "group nobody does not exist"),
        (["seek", "nobody", "--to", "start", "-t", "nowhere"], "topic nowhere does not exist"),
        (
            ["seek", "nobody", "--to", "shift:1", "-t", "orders"],
            "no committed offset in orders partition 0",
        ),
    ):
        refused = headrace("group", *arguments, status=1)
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1
