"""`headrace produce --delay` and `headrace schedule` on a topic that keeps nothing back."""

from tests.broker.cli.conftest import Run


def test_a_topic_that_keeps_nothing_back_gets_no_delayed_message(headrace: Run) -> None:
    headrace("topic", "create", "orders")
    line = (
        "headrace: topic orders keeps no messages back: "
        "run `headrace topic alter orders -c headrace.delay.enable=true` first\n"
    )
    assert headrace("produce", "orders", "--delay", "10m", stdin="x\n", status=1).stderr == line
    for command in (
        ["list"], ["show", "--id", "0:1"], ["cancel", "--id", "0:1"], ["cancel", "--key", "k"],
        ["move", "--id", "0:1", "--at", "+1h"],
    ):  # fmt: skip
        assert headrace("schedule", command[0], "orders", *command[1:], status=1).stderr == line
    assert headrace("consume", "orders", "--exit").stdout == ""
