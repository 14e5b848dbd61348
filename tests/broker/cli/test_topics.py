"""`headrace topic` and `headrace cluster` against a real broker."""

import json

from tests.broker.cli.conftest import Run


def lines(count: int) -> str:
    return "".join(f"value {number}\n" for number in range(count))


def test_a_topic_is_created_shown_altered_and_deleted(headrace: Run) -> None:
    assert "created topic orders with 2 partitions" in headrace("topic", "create", "orders", "-p", "2").stdout
    assert json.loads(headrace("topic", "list", "--json").stdout) == [
        {"topic": "orders", "partitions": 2, "replicas": 1}
    ]
    headrace("topic", "alter", "orders", "-c", "retention.ms=1000000", "-c", "max.message.bytes=5000")
    headrace("topic", "alter", "orders", "--delete-config", "max.message.bytes", "--partitions", "3")
    (described,) = json.loads(headrace("topic", "describe", "orders", "--json").stdout)
    assert described["configs"] == {"retention.ms": "1000000"}
    assert [(row["partition"], row["start"], row["end"]) for row in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert all(row["replicas"] == row["isr"] == [row["leader"]] for row in described["partitions"])
    assert "retention.ms=1000000" in headrace("topic", "describe", "orders").stdout
    headrace("topic", "delete", "orders", "--yes")
    assert json.loads(headrace("topic", "list", "--json").stdout) == []


def test_delete_asks_first_and_no_is_no(headrace: Run) -> None:
    headrace("topic", "create", "orders")
    asked = headrace("topic", "delete", "orders", stdin="n\n", status=1)
    assert "Delete orders and all messages?" in asked.stderr
    assert "orders" in headrace("topic", "list").stdout
    headrace("topic", "delete", "orders", stdin="y\n")


def test_every_setting_is_shown_on_demand(headrace: Run) -> None:
    headrace("topic", "create", "orders")
    (described,) = json.loads(headrace("topic", "describe", "orders", "--defaults", "--json").stdout)
    assert described["configs"]["cleanup.policy"] == "delete"


def test_refusals_name_the_topic_in_one_line(headrace: Run) -> None:
    headrace("topic", "create", "orders", "-p", "2")
    for arguments, words in (
        (["topic", "create", "orders"], "cannot create topic orders"),
        (["topic", "create", "bad name"], "cannot create topic bad name"),
        (["topic", "create", "other", "-c", "no.such.setting=1"], "cannot create topic other"),
        (["topic", "describe", "nowhere"], "topic nowhere does not exist"),
        (["topic", "alter", "nowhere", "-p", "2"], "topic nowhere does not exist"),
        (["topic", "delete", "nowhere", "--yes"], "topic nowhere does not exist"),
        (["topic", "alter", "orders", "-p", "1"], "cannot increase topic orders to 1 partition"),
        (["topic", "trim", "orders", "--before", "9"], "cannot trim orders before 9: partition 0 ends at 0"),
        (["topic", "trim", "orders", "--all", "-p", "7"], "topic orders has no partition 7: it has 0 to 1"),
    ):
        refused = headrace(*arguments, status=1)
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert refused.stdout == ""


def test_trim_cuts_by_offset_by_time_and_wholly(headrace: Run) -> None:
    headrace("topic", "create", "orders")
    headrace("produce", "orders", "--timestamp", "-2h", stdin=lines(5))
    headrace("produce", "orders", stdin=lines(5))

    def trim(*arguments: str) -> list[dict[str, int]]:
        trimmed: list[dict[str, int]] = json.loads(headrace("topic", "trim", "orders", *arguments, "--json").stdout)[
            "partitions"
        ]
        return trimmed

    assert trim("--before", "2", "-p", "0") == [{"partition": 0, "start": 2, "removed": 2}]
    assert trim("--before-time", "-1h") == [{"partition": 0, "start": 5, "removed": 3}]
    assert trim("--before", "1") == [{"partition": 0, "start": 5, "removed": 0}]
    assert trim("--all") == [{"partition": 0, "start": 10, "removed": 5}]


def test_cluster_info_shows_brokers_and_counts(headrace: Run) -> None:
    headrace("topic", "create", "orders", "-p", "3")
    info = json.loads(headrace("cluster", "info", "--json").stdout)
    assert info["cluster_id"]
    assert info["controller"] in [broker["id"] for broker in info["brokers"]]
    assert info["topics"] >= 1
    assert info["partitions"] >= 3
    assert info["cluster_id"] in headrace("cluster", "info").stdout
