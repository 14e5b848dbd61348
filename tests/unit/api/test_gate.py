"""What a caller may not do is refused on both paths, in Kafka's words; what every API needs is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from headrace.api.authorized_operations import OPERATIONS
from headrace.api.contract import Caller, Disconnect, Peer
from headrace.api.express_fetch import ExpressFetch
from headrace.api.fetch import Fetch
from headrace.api.gate import Gate
from headrace.api.operations import NONE, Need, Operation, Resource
from headrace.api.table import Api, Rooms, build_table
from headrace.model.broker_config import broker_config
from headrace.server.dispatch import Dispatcher
from headrace.server.requests_seen import RequestsSeen
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message, decode_response
from sim.loop import SimClock
from tests.unit.api import test_express_fetch as fetching
from tests.unit.api import test_express_produce as producing
from tests.unit.server.long import long_work

PEER = Peer("10.0.0.9", 5555, "127.0.0.1", 9092)
ALICE, MALLORY = Caller(PEER, "User:alice"), Caller(PEER, "User:mallory")
DENIED = ErrorCode.topic_authorization_failed


class Denying:
    """Denies one operation to mallory, on whatever resource; `is_on` so that it can change its mind."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.is_on = True
        self.asked: list[tuple[Resource, str]] = []

    def __call__(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        self.asked.append((resource, name))
        return not (self.is_on and caller.principal == MALLORY.principal and operation is self.operation)


# --- produce --------------------------------------------------------------------------------------------------------


def produced(reply: bytes | None, version: int) -> Message:
    assert reply
    at = 9 if version >= 9 else 8
    answer = decode_response(ApiKey.PRODUCE, version, memoryview(reply)[at:])
    return cast("Message", answer.responses[0].partition_responses[0])


@pytest.mark.parametrize("express", [True, False], ids=["express", "full"])
@pytest.mark.parametrize("version", producing.VERSIONS)
def test_a_producer_without_write_is_refused_and_another_is_not(version: int, express: bool) -> None:
    async def story() -> None:
        room = producing.Room(express=express, gate=Gate(Denying(Operation.WRITE)))
        body = producing.request(producing.topic("orders", producing.good()))
        assert produced(await room.ask(version, body, MALLORY), version).error_code == DENIED
        assert room.partition().log.end_offset == 0
        assert produced(await room.ask(version, body, ALICE), version).error_code == 0
        assert room.partition().log.end_offset == 2

    producing.in_room(story)


@pytest.mark.parametrize("express", [True, False], ids=["express", "full"])
def test_a_producer_without_write_does_not_learn_whether_a_topic_exists(express: bool) -> None:
    async def story() -> None:
        room = producing.Room(express=express, gate=Gate(Denying(Operation.WRITE)))
        for name in ("orders", "nowhere", producing.GROUP_OFFSETS_TOPIC):
            body = producing.request(producing.topic(name, producing.good()))
            assert produced(await room.ask(9, body, MALLORY), 9).error_code == DENIED

    producing.in_room(story)


@pytest.mark.parametrize("acks", [0, -1])
def test_a_denied_producer_is_told_by_a_closed_connection_where_it_wants_no_reply(acks: int) -> None:
    async def story() -> None:
        room = producing.Room(express=True, gate=Gate(Denying(Operation.WRITE)))
        body = producing.request(producing.topic("orders", producing.good()), acks=acks)
        reply = await room.ask(9, body, MALLORY)
        assert (reply == b"") == (acks == 0)
        assert room.partition().log.end_offset == 0

    producing.in_room(story)


def test_an_internal_topic_is_not_written_by_clients_and_does_not_enter_their_transactions() -> None:
    async def story() -> None:
        asked: list[Any] = []

        class Desk(producing.RefusingDesk):
            def submit(self, command: Any) -> asyncio.Future[Any]:
                asked.append(command)
                return super().submit(command)

        room = producing.Room(express=True, desk=Desk())
        records = producing.transactional()
        for name, code in [("orders", ErrorCode.invalid_txn_state), (producing.GROUP_OFFSETS_TOPIC, 17)]:
            body = producing.request(producing.topic(name, records), acks=-1, transactional_id="t")
            assert produced(await room.ask(12, body), 12).error_code == code
        assert len(asked) == 1, "the coordinator has not heard of the internal topic"

    producing.in_room(story)


# --- fetch ----------------------------------------------------------------------------------------------------------


class Reading(fetching.Room):
    def __init__(self, authorizer: Denying, *, express: bool) -> None:
        super().__init__(Gate(authorizer))
        lane = self.express if express else None
        api = Api(ApiKey.FETCH, 4, 18, NONE, self.full, express=lane)
        self.dispatch = Dispatcher({1: api}, RequestsSeen(), SimClock(), long_work())

    async def ask(self, version: int, body: Message, caller: Caller) -> Message:
        frame, _ = fetching.frame_of(version, body)
        reply: Any = self.dispatch(frame, caller)
        while not isinstance(reply, list):
            reply = reply.finish(await reply.awaited)
        at = 9 if version >= 12 else 8
        answer = decode_response(ApiKey.FETCH, version, memoryview(b"".join(reply))[at:])
        return cast("Message", answer.responses[0].partitions[0])


both_paths = pytest.mark.parametrize("express", [True, False], ids=["express", "full"])
with_versions = pytest.mark.parametrize("version", fetching.VERSIONS)


@both_paths
@with_versions
def test_a_consumer_without_read_is_refused_and_another_is_not(version: int, express: bool) -> None:
    async def story() -> None:
        room = Reading(Denying(Operation.READ), express=express)
        denied = await room.ask(version, fetching.request(), MALLORY)
        assert (denied.error_code, bytes(denied.records or b"")) == (DENIED, b"")
        allowed = await room.ask(version, fetching.request(), ALICE)
        assert allowed.error_code == 0
        assert allowed.records

    fetching.in_room(story())


@both_paths
@with_versions
def test_a_consumer_that_loses_read_while_it_waits_is_refused(version: int, express: bool) -> None:
    async def story() -> None:
        rule = Denying(Operation.READ)
        rule.is_on = False
        room = Reading(rule, express=express)
        body = fetching.request(fetching.topic("orders", fetching.partition(0)), max_wait_ms=500)
        waiting = asyncio.ensure_future(room.ask(version, body, MALLORY))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        rule.is_on = True
        room.append("orders", 0)
        denied = await waiting
        assert (denied.error_code, bytes(denied.records or b"")) == (DENIED, b"")

    fetching.in_room(story())


def test_a_replica_must_be_allowed_to_act_for_the_cluster() -> None:
    async def story() -> None:
        room = Reading(Denying(Operation.CLUSTER_ACTION), express=True)
        body = fetching.request(replica_id=2, session_epoch=0, max_wait_ms=0)
        assert (await room.ask(13, body, MALLORY)).error_code == DENIED
        assert (await room.ask(13, fetching.request(), MALLORY)).error_code == 0, "it may read as a consumer"

    fetching.in_room(story())


# --- every API ------------------------------------------------------------------------------------------------------


class Anything:
    """Stands for every room: the table only stores what it is given."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def table(gate: Gate) -> dict[int, Api]:
    nothing: Any = Anything()
    fields = dict.fromkeys(Rooms.__struct_fields__, nothing)
    return dict(build_table(Rooms(**fields | {"gate": gate, "config": broker_config({"broker.id": "1"})})))


def test_an_api_without_its_operations_cannot_be_registered() -> None:
    with pytest.raises(TypeError, match="needs"):
        Api(key=ApiKey.METADATA, lowest=0, highest=1, handler=lambda request: None)  # type: ignore[call-arg]


def test_every_api_needs_an_operation_that_its_resource_has_and_only_the_handshake_needs_none() -> None:
    apis = table(Gate())
    assert {api.key for api in apis.values() if api.needs is NONE} == {ApiKey.API_VERSIONS}
    operations = OPERATIONS | {Resource.TRANSACTIONAL_ID: {Operation.DESCRIBE, Operation.WRITE}}
    for api in apis.values():
        assert all(need.operation in operations[need.resource] for need in api.needs), api.name


def test_without_an_authorizer_no_request_is_asked_about() -> None:
    assert [api.name for api in table(Gate()).values() if api.guard is not None] == []


def test_with_an_authorizer_every_api_is_guarded_or_asks_by_name() -> None:
    apis = table(Gate(Denying(Operation.ALTER)))
    free = {api.key for api in apis.values() if api.guard is None and not api.asks_by_name}
    assert free == {ApiKey.API_VERSIONS}
    by_name = {api.key for api in apis.values() if api.asks_by_name}
    assert by_name == {ApiKey.PRODUCE, ApiKey.FETCH}
    assert all(isinstance(apis[key].handler, Fetch) for key in by_name if key is ApiKey.FETCH)
    assert isinstance(apis[ApiKey.FETCH].express, ExpressFetch)


def test_a_request_as_a_whole_that_is_not_allowed_reaches_neither_path() -> None:
    async def story() -> None:
        rule = Denying(Operation.ALTER)
        needs = (Need(Operation.READ, Resource.GROUP), Need(Operation.ALTER, Resource.CLUSTER))
        reached: list[Any] = []
        guard = Gate(rule).guard(needs)
        api = Api(ApiKey.METADATA, 0, 13, needs, reached.append, guard=guard)
        dispatch = Dispatcher({3: api}, RequestsSeen(), SimClock(), long_work())
        frame = memoryview(b"\x00\x03\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00")
        with pytest.raises(Disconnect, match="User:mallory may not use Metadata"):
            dispatch(frame, MALLORY)
        assert reached == []
        dispatch(frame, ALICE)
        assert len(reached) == 1
        assert rule.asked[:2] == [(Resource.GROUP, "*"), (Resource.CLUSTER, "kafka-cluster")]

    fetching.in_room(story())
