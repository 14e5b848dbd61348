"""`headrace share`, and `headrace group` on share groups, against a broker whose share coordinator is in memory."""

import json
import time
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.server.broker import Broker
from headrace.testing.local_broker import LocalBroker
from headrace.testing.plugin import BrokerFactory
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import Message
from tests.broker.cli.conftest import Run
from tests.raw_client import RawClient
from tests.share_states import MemoryStates

PATIENCE_S = 30


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> MemoryStates:
    memory = MemoryStates()
    monkeypatch.setattr(Broker, "_share_states", lambda self: memory)
    return memory


@pytest.fixture
def broker(states: MemoryStates, broker_factory: BrokerFactory) -> LocalBroker:
    return broker_factory()


@pytest.fixture
def workers(broker: LocalBroker, headrace: Run) -> Run:
    """A topic with five messages in two partitions, and a share group with one member."""
    headrace("topic", "create", "orders", "--partitions", "2")
    headrace("produce", "orders", "--partition", "0", stdin="0\n1\n2\n")
    headrace("produce", "orders", "--partition", "1", stdin="3\n4\n")
    with RawClient(broker.port) as client:
        client.call(ApiKey.FIND_COORDINATOR, 4, Message(key_type=0, coordinator_keys=["workers"]))
        deadline = time.monotonic() + PATIENCE_S
        while (code := beat(client, 0)) != 0:
            assert time.monotonic() < deadline, f"the coordinator still answers {code}"
    return headrace


def beat(client: RawClient, epoch: int) -> int:
    topics = ["orders"] if epoch == 0 else None
    body = Message(group_id="workers", member_id="m", member_epoch=epoch, subscribed_topic_names=topics)
    return int(client.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, body).error_code)


def leave(broker: LocalBroker) -> None:
    with RawClient(broker.port) as client:
        assert beat(client, -1) == 0


def described(headrace: Run, *command: str) -> dict[str, Any]:
    (document,) = json.loads(headrace(*(command or ("share", "describe")), "workers", "--json").stdout)
    assert isinstance(document, dict)
    return document


def test_share_groups_are_listed_alone_and_among_others(workers: Run) -> None:
    workers("consume", "orders", "-g", "billing", "-n", "1")
    assert json.loads(workers("share", "list", "--json").stdout) == [{"group": "workers", "state": "stable"}]
    assert json.loads(workers("group", "list", "--json").stdout) == [
        {"group": "billing", "state": "empty", "type": "classic"},
        {"group": "workers", "state": "stable", "type": "share"},
    ]
    assert "workers" in workers("share", "list").stdout


def test_a_share_group_is_described_with_members_and_lag(workers: Run, states: MemoryStates) -> None:
    group = described(workers)
    assert (group["type"], group["state"], group["lag"]) == ("share", "stable", None)
    (member,) = group["members"]
    assert (member["member"], member["client"], member["partitions"]) == ("m", "raw", ["orders:0", "orders:1"])
    for place, state in states.states.items():
        states.states[place] = replace(state, start_offset=1, delivery_complete_count=0)
    group = described(workers)
    assert group["partitions"] == [
        {"topic": "orders", "partition": 0, "start": 1, "lag": 2, "members": 1},
        {"topic": "orders", "partition": 1, "start": 1, "lag": 1, "members": 1},
    ]
    assert group["lag"] == 3
    assert described(workers, "group", "describe") == group
    assert "3 messages" in workers("group", "describe", "workers").stdout


def test_a_share_group_starts_elsewhere(workers: Run, broker: LocalBroker, states: MemoryStates) -> None:
    refused = workers("share", "seek", "workers", "--to", "start", status=1)
    assert refused.stderr == "headrace: share group workers has 1 member: stop them first\n"
    leave(broker)
    other = workers("group", "seek", "workers", "--topic", "orders", "--to", "start", status=1)
    assert other.stderr == "headrace: group workers is a share group: use `headrace share seek`\n"
    dry = workers("share", "seek", "workers", "--to", "end", "--dry-run", "--json")
    assert json.loads(dry.stdout)["partitions"] == [
        {"topic": "orders", "partition": 0, "from": None, "to": 3},
        {"topic": "orders", "partition": 1, "from": None, "to": 2},
    ]
    assert {state.start_offset for state in states.states.values()} == {-1}
    workers("share", "seek", "workers", "--to", "end")
    assert [row["start"] for row in described(workers)["partitions"]] == [3, 2]
    workers("share", "seek", "workers", "--topic", "orders:0", "--to", "offset:1")
    workers("share", "seek", "workers", "--topic", "orders:1", "--to", "time:-1h")
    assert [row["start"] for row in described(workers)["partitions"]] == [1, 0]


def test_a_share_group_forgets_a_topic_and_is_deleted(workers: Run, broker: LocalBroker, states: MemoryStates) -> None:
    assert "1 member" in workers("share", "delete", "workers", "--yes", status=1).stderr
    assert "1 member" in workers("group", "delete", "workers", "--yes", status=1).stderr
    leave(broker)
    refused = workers("share", "delete", "workers", "--topic", "orders", "--topic", "payments", "--yes", status=1)
    assert "in payments: This server does not host this topic-partition" in refused.stderr
    assert described(workers)["partitions"] == []
    workers("share", "delete", "workers", "--yes")
    assert json.loads(workers("group", "list", "--json").stdout) == []
    assert states.states == {}


def test_any_group_is_deleted_by_the_same_command(workers: Run, broker: LocalBroker) -> None:
    leave(broker)
    assert workers("group", "delete", "workers", "--yes").stdout == "deleted workers\n"
    assert json.loads(workers("share", "list", "--json").stdout) == []


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_a_share_group_that_does_not_exist_is_one_line(workers: Run, command: str) -> None:
    done = workers("share", command, "nobody", status=1)
    assert done.stderr == "headrace: share group nobody does not exist: `headrace share list` shows those that do\n"
    done = workers("group", command, "nobody", status=1)
    assert done.stderr == "headrace: group nobody does not exist: `headrace group list` shows those that do\n"
