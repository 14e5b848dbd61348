"""`headrace view`, and messages produced and consumed by tag, against a real broker."""

from __future__ import annotations

import json

import pytest

from tests.broker.cli.conftest import Run


def orders(headrace: Run, *settings: str) -> None:
    headrace("topic", "create", "orders", *settings)
    headrace("produce", "orders", "--tag", "urgent", stdin="one\n")
    headrace("produce", "orders", "--tag", "urgent", "--tag", "big", "-H", "a=b", stdin="two\n")
    headrace("produce", "orders", stdin="three\n")


TAGGED = ("-c", "headrace.tags.enable=true")


def test_a_view_is_created_shown_read_and_deleted(headrace: Run) -> None:
    orders(headrace, *TAGGED)
    done = headrace("view", "create", "orders.big", "--of", "orders", "--tag", "big", "--tag", "huge")
    assert done.stdout == "created view orders.big of orders: records with any of 2 tags big, huge\n"
    facts = {"view": "orders.big", "of": "orders", "match": "any", "tags": ["big", "huge"]}
    assert json.loads(headrace("view", "list", "--json").stdout) == [facts]
    assert json.loads(headrace("view", "list", "--of", "other", "--json").stdout) == []
    assert "orders.big" in headrace("view", "list").stdout
    described = json.loads(headrace("view", "describe", "orders.big", "--json").stdout)
    assert described == {**facts, "partitions": [{"partition": 0, "start": 0, "end": 3}]}
    assert "records with any of 2 tags" in headrace("view", "describe", "orders.big").stdout
    assert headrace("consume", "orders.big", "--exit").stdout == "two\n"
    assert "orders.big" in headrace("topic", "list").stdout
    (topic,) = json.loads(headrace("topic", "describe", "orders.big", "--json").stdout)
    assert topic["configs"]["headrace.view.of"] == "orders"
    assert "orders.big" in headrace("topic", "delete", "orders", "--yes", status=1).stderr
    headrace("view", "delete", "orders.big", "--yes")
    assert headrace("consume", "orders", "--exit").stdout == "one\ntwo\nthree\n"


def test_a_view_of_what_is_pending_is_created_shown_read_and_deleted(headrace: Run) -> None:
    headrace("topic", "create", "reminders", "-c", "headrace.delay.enable=true")
    headrace("produce", "reminders", "--delay", "10m", stdin="tea\n")
    done = headrace("view", "create", "waiting", "--of", "reminders", "--pending")
    assert done.stdout == "created view waiting of reminders: what is pending\n"
    facts = {"view": "waiting", "of": "reminders", "pending": True}
    assert json.loads(headrace("view", "list", "--json").stdout) == [facts]
    described = json.loads(headrace("view", "describe", "waiting", "--json").stdout)
    assert described == {**facts, "partitions": [{"partition": 0, "start": 0, "end": 2}]}
    assert "what is pending" in headrace("view", "list").stdout
    assert headrace("consume", "waiting", "--exit").stdout == "tea\n"
    by_time = headrace("consume", "waiting", "--from", "time:-1h", "--exit", status=1)
    assert "cannot be looked up by time" in by_time.stderr
    headrace("view", "delete", "waiting", "--yes")
    for arguments, words in (
        (["--pending", "--tag", "a"], "goes without --tag"),
        (["--pending", "--match", "none"], "goes without --tag and --match"),
        ([], "--tag TAG, or --pending"),
    ):
        assert words in headrace("view", "create", "v", "--of", "reminders", *arguments, status=2).stderr


@pytest.mark.parametrize("settings", [TAGGED, ()])
def test_messages_are_filtered_by_tag_on_any_topic(headrace: Run, settings: tuple[str, ...]) -> None:
    orders(headrace, *settings)
    for arguments, expected in (
        (["--tag", "urgent"], "one\ntwo\n"),
        (["--tag", "urgent", "--tag", "big", "--match", "all"], "two\n"),
        (["--tag", "urgent", "--match", "none"], "three\n"),
        (["--tag", "nobody"], ""),
    ):
        assert headrace("consume", "orders", "--exit", *arguments).stdout == expected
    assert headrace("consume", "orders", "--exit", "--group", "g", "--tag", "big").stdout == "two\n"


def test_refusals_are_one_line(headrace: Run) -> None:
    orders(headrace)
    for arguments, words in (
        (["view", "create", "v", "--of", "orders", "--tag", "a"], "set headrace.tags.enable=true on that topic"),
        (["view", "create", "v", "--of", "nowhere", "--tag", "a"], "there is no such topic"),
        (["view", "delete", "orders", "--yes"], "topic orders is no view"),
        (["view", "describe", "nowhere"], "topic nowhere does not exist"),
    ):
        assert words in headrace(*arguments, status=1).stderr
    assert "choose from" in headrace("view", "create", "v", "--of", "o", "-t", "a", "--match", "x", status=2).stderr
    assert "by name" in headrace("consume", "^o", "--tag", "a", status=2).stderr
