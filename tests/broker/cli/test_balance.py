"""`headrace cluster balance` where there is nothing to balance; several brokers are in tests/cluster."""

import json

from tests.broker.cli.conftest import Run


def test_a_single_broker_is_in_balance(headrace: Run) -> None:
    headrace("topic", "create", "orders", "--partitions", "3")
    done = headrace("cluster", "balance")
    assert "nothing to move" in done.stderr
    shown = json.loads(headrace("cluster", "balance", "--dry-run", "--json").stdout)
    assert shown["moves"] == []
    assert [(share["leads"], share["replicas"]) for share in shown["after"]] == [(3, 3)]
