"""Every API that is served, with arrays of thousands: its handler leaves a turn to others between pieces of hundreds.

The requests are drawn up from the schemas, in two shapes: many entries in the innermost array, and many outer entries
with one inner entry each. What is counted is how often a handler yields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.api.contract import Handler, Held, Reply, Request
from headrace.api.pieces import PIECE
from headrace.api.table import Api, build_table
from headrace.server import broker as broker_module
from headrace.testing.local_broker import LocalBroker
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import Message
from headrace.wire.schemas import Slot, entity_of, slots_of
from tests.raw_client import RawClient

ENTRIES = 5 * PIECE // 2
SHAPES = ("inner", "outer")
_OF_ONE_GROUP = "members, protocols or topics of one group, of which a request may have 10,000; or a megabyte in all"
_ONE_DECISION = "entries of one resource, on which the controller decides in one go"
_FILTERS = "the entries only become a set"
_LATER = "found in stage two, where the response is built in steps"
_NO_SESSION = "acknowledgements without a session are refused before they are looked at"
_STATES = "in stage two, some share partitions at a time"
AT_ONCE = {
    (ApiKey.JOIN_GROUP, "inner"): _OF_ONE_GROUP,
    (ApiKey.SYNC_GROUP, "inner"): _OF_ONE_GROUP,
    (ApiKey.LEAVE_GROUP, "inner"): _OF_ONE_GROUP,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "inner"): _OF_ONE_GROUP,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "outer"): _OF_ONE_GROUP,
    (ApiKey.ADD_PARTITIONS_TO_TXN, "inner"): "partitions of one transaction, of which a request may have 20,000",
    (ApiKey.ADD_PARTITIONS_TO_TXN, "outer"): "partitions of one transaction, of which a request may have 20,000",
    (ApiKey.OFFSET_FETCH, "inner"): _LATER,
    (ApiKey.OFFSET_FETCH, "outer"): _LATER,
    (ApiKey.CREATE_TOPICS, "inner"): _ONE_DECISION,
    (ApiKey.CREATE_PARTITIONS, "inner"): _ONE_DECISION,
    (ApiKey.ALTER_CONFIGS, "inner"): _ONE_DECISION,
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "inner"): _ONE_DECISION,
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, "inner"): _ONE_DECISION,
    (ApiKey.DESCRIBE_CONFIGS, "inner"): _FILTERS,
    (ApiKey.DESCRIBE_LOG_DIRS, "inner"): _FILTERS,
    (ApiKey.DESCRIBE_LOG_DIRS, "outer"): _FILTERS,
    (ApiKey.LIST_GROUPS, "inner"): _FILTERS,
    (ApiKey.LIST_TRANSACTIONS, "inner"): _FILTERS,
    (ApiKey.LIST_CONFIG_RESOURCES, "inner"): _FILTERS,
    (ApiKey.SHARE_GROUP_HEARTBEAT, "inner"): _OF_ONE_GROUP,
    (ApiKey.SHARE_FETCH, "inner"): _NO_SESSION,
    (ApiKey.SHARE_FETCH, "outer"): _NO_SESSION,
    (ApiKey.SHARE_ACKNOWLEDGE, "inner"): _NO_SESSION,
    (ApiKey.SHARE_ACKNOWLEDGE, "outer"): _NO_SESSION,
    (ApiKey.WRITE_SHARE_GROUP_STATE, "inner"): "batches of one share partition",
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "inner"): _STATES,
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "outer"): _STATES,
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, "inner"): _STATES,
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, "outer"): _STATES,
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, "inner"): _STATES,
    (ApiKey.UPDATE_FEATURES, "inner"): "a request may have 1,000 entries",
}


def depth(entity: type) -> int:
    """How many arrays are inside each other."""
    return max((1 + (depth(slot.entity) if slot.entity else 0) for slot in slots_of(entity) if slot.array), default=0)


def value(slot: Slot, number: int) -> Any:
    if slot.entity is not None:
        return None if slot.nullable else request_of(slot.entity, "inner", number)
    if slot.kind == "string":
        return f"n{number}"
    if slot.kind == "uuid":
        return None
    if slot.kind in ("bytes", "records"):
        return b""
    known = {"acks": 1, "resource_type": 2, "num_partitions": 1, "replication_factor": 1, "timestamp": -1}
    known |= dict.fromkeys(("replica_id", "session_epoch", "generation_id", "generation_id_or_member_epoch"), -1)
    if slot.name in ("partition", "partition_index", "partition_indexes", "partitions"):
        return number
    return known.get(slot.name, 0)


def request_of(entity: type, shape: str, number: int = 0, entries: int = 1) -> Message:
    message = Message()
    arrays = [slot for slot in slots_of(entity) if slot.array]
    deepest = max(arrays, key=lambda slot: 1 + (depth(slot.entity) if slot.entity else 0), default=None)
    for slot in slots_of(entity):
        if not slot.array:
            setattr(message, slot.name, value(slot, number))
        elif slot is deepest:
            inner = slot.entity is not None and depth(slot.entity) > 0
            count, further = (1, entries) if inner and shape == "inner" else (entries, 1)
            items = [
                value(slot, at) if slot.entity is None else request_of(slot.entity, shape, at, further)
                for at in range(count)
            ]
            setattr(message, slot.name, items)
        else:
            setattr(message, slot.name, [])
    return message


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalBroker, Counter[int]]]:
    """A broker, and how often the handler of each API has yielded; one that holds its connection has as well."""
    pieces: Counter[int] = Counter()

    def counting(key: int, handler: Handler) -> Handler:
        def handle(request: Request) -> Reply:
            reply = handler(request)
            if isinstance(reply, Held):
                pieces[key] += ENTRIES // PIECE
            return counting_steps(key, reply) if isinstance(reply, GeneratorType) else reply

        return handle

    def counting_steps(key: int, steps: Any) -> Any:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value
            pieces[key] += 1
            yield

    def build(rooms: Any) -> Mapping[int, Api]:
        return {key: replace(api, handler=counting(key, api.handler)) for key, api in build_table(rooms).items()}

    monkeypatch.setattr(broker_module, "build_table", build)
    with LocalBroker(tmp_path) as broker:
        yield broker, pieces


def test_every_handler_leaves_a_turn_to_others(
    counted: tuple[LocalBroker, Counter[int]], served: Callable[[LocalBroker], dict[int, int]]
) -> None:
    broker, pieces = counted
    with RawClient(broker.port) as client:  # creates the topic of the groups
        assert client.call(ApiKey.FIND_COORDINATOR, 3, Message(key="g", key_type=0)).error_code == 0
    wrong, needless = [], set(AT_ONCE)
    for key, version in served(broker).items():
        entity = entity_of(key, version, "request")
        for shape in SHAPES[: depth(entity)]:
            before = pieces[key]
            with RawClient(broker.port) as client:
                client.send(key, version, request_of(entity, shape, entries=ENTRIES))
                client.receive_frame()
            place, yielded = (ApiKey(key), shape), pieces[key] - before
            if yielded < ENTRIES // PIECE and place not in AT_ONCE:
                wrong.append(f"{place}: {ENTRIES} entries and {yielded} yields")
            if yielded < ENTRIES // PIECE:
                needless.discard(place)
    assert wrong == []
    assert needless == set(), "these leave turns to others by now"


@pytest.fixture
def served() -> Callable[[LocalBroker], dict[int, int]]:
    """The APIs, each with a version that names topics."""
    names_topics = {ApiKey.PRODUCE: 7, ApiKey.FETCH: 11, ApiKey.OFFSET_COMMIT: 8, ApiKey.OFFSET_FETCH: 7}
    names_topics |= {ApiKey.METADATA: 9, ApiKey.DELETE_TOPICS: 5, ApiKey.ADD_PARTITIONS_TO_TXN: 3}

    def ask(broker: LocalBroker) -> dict[int, int]:
        with RawClient(broker.port) as client:
            keys = client.call(ApiKey.API_VERSIONS, 0, Message()).api_keys
        return {api.api_key: names_topics.get(api.api_key, api.max_version) for api in keys}

    return ask
