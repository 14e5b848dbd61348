"""What only the controller can do is passed on to it, once, and otherwise refused as the handler here refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.api.contract import Caller, Peer, Request
from headrace.api.operations import NONE
from headrace.api.pieces import settled
from headrace.api.table import Api
from headrace.client.blocking import Address, ConnectionLost
from headrace.cluster.topic_changes import NewTopic
from headrace.cluster.view import ClusterView
from headrace.model.broker_token import BrokerToken
from headrace.model.image import NO_CONTROLLER, BrokerImage, ClusterImage
from headrace.server.forwarding import NAME, Forwarding, forwarding_name, is_forwarded
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from sim.loop import SimClock, run
from tests.unit.cluster.test_following import topic

PEER = Peer("client", 1, "here", 9092)
TOKEN = BrokerToken("0123456789abcdef")
LOST = ConnectionLost(Address("there", 9092), "gone")


class Office:
    def __init__(self) -> None:
        self.in_office = False

    def create_topic(self, new: NewTopic) -> asyncio.Future[Any]:
        made = asyncio.get_running_loop().create_future()
        made.set_result(topic(1))
        return made


class Line:
    """A connection that answers with what it is given, and notes what it is asked."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[int, Message, int | None]] = []
        self.unreachable = 0

    async def reach(self, broker: BrokerImage) -> Line:
        if self.unreachable:
            self.unreachable -= 1
            raise LOST
        return self

    async def call(self, api_key: int, body: Message, version: int | None = None, *, timeout_s: float = 0) -> Message:
        self.asked.append((api_key, body, version))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Message)
        return answer


def rig(answers: list[Any], controller: int = 2) -> tuple[Forwarding, Office, Line, ClusterView, Callable[..., Any]]:
    office, line, view = Office(), Line(answers), ClusterView()
    view.publish(ClusterImage("c", controller, {2: BrokerImage(2, "there", 9092, None, 0, token=TOKEN)}))
    forwarding = Forwarding(office, view, line, SimClock())  # type: ignore[arg-type]

    def here(request: Request) -> Message:
        return Message(where="here", client_id=request.client_id)

    table = {
        19: Api(ApiKey.CREATE_TOPICS, 0, 7, NONE, here),
        3: Api(ApiKey.METADATA, 0, 13, NONE, here),
    }
    wrapped = forwarding.over(table)

    async def ask(api_key: int, client_id: str = "client", timeout_ms: int = 1000) -> Message:
        reply: Any = wrapped[api_key].handler(
            Request(api_key, 5, client_id, Message(topics=[], timeout_ms=timeout_ms), Caller(PEER))
        )
        return await settled(reply)

    return forwarding, office, line, view, ask


def test_a_request_for_the_controller_is_passed_on_in_its_version_and_others_are_not() -> None:
    async def story() -> None:
        _, office, line, view, ask = rig([Message(where="there")])
        assert (await ask(3)).where == "here"
        assert (await ask(19)).where == "there"
        assert [(key, version) for key, _, version in line.asked] == [(19, 5)]
        assert (await ask(19, forwarding_name(view.image, 2))).where == "here", "passed on once already"
        office.in_office = True
        assert (await ask(19)).where == "here"

    run(story(), seed=1)


@pytest.mark.parametrize(
    "client_id", [NAME, f"{NAME}:", f"{NAME}:0123456789abcdeF", f"{NAME}:\u0663", f"{NAME}2:0123456789abcdef"]
)
def test_a_client_that_only_calls_itself_a_broker_is_treated_as_any_client(client_id: str) -> None:
    async def story() -> None:
        _, _, line, _, ask = rig([Message(where="there")])
        assert (await ask(19, client_id)).where == "there"
        assert len(line.asked) == 1

    run(story(), seed=1)


def test_a_broker_that_registered_without_a_token_is_recognized_by_nothing() -> None:
    image = ClusterImage("c", 2, {2: BrokerImage(2, "there", 9092, None, 0)})
    assert not is_forwarded(image, forwarding_name(image, 2))
    assert not is_forwarded(image, forwarding_name(image, 3))


def test_the_handler_does_not_see_the_token_of_a_forwarded_request() -> None:
    async def story() -> None:
        _, _, _, view, ask = rig([])
        assert (await ask(19, forwarding_name(view.image, 2))).client_id == NAME

    run(story(), seed=1)


def test_a_controller_that_cannot_be_reached_is_waited_for_and_one_that_went_is_not_asked_twice() -> None:
    async def story() -> None:
        _, _, line, _, ask = rig([Message(where="there"), LOST, Message(where="twice")])
        line.unreachable = 3
        assert (await ask(19)).where == "there"
        assert (await ask(19)).where == "here", "whether it was done is not known: the client decides"
        assert len(line.asked) == 2

    run(story(), seed=1)


def test_without_a_controller_the_request_is_refused_when_its_time_is_up() -> None:
    async def story() -> None:
        _, _, line, view, ask = rig([Message(where="there")], NO_CONTROLLER)
        clock = SimClock()
        assert (await ask(19)).where == "here"
        assert clock.monotonic() >= 1
        asking = asyncio.ensure_future(ask(19, timeout_ms=5000))
        await clock.sleep(2)
        view.publish(ClusterImage("c", 2, view.image.brokers))
        assert (await asking).where == "there"
        assert len(line.asked) == 1

    run(story(), seed=1)


def test_a_topic_that_this_broker_needs_is_made_by_the_controller_and_waited_for() -> None:
    async def story() -> None:
        made = Message(topics=[Message(error_code=0, error_message=None)])
        forwarding, office, line, view, _ = rig([made, Message(topics=[Message(error_code=38, error_message="few")])])
        making = forwarding.create_topic(NewTopic("orders", settings={"cleanup.policy": "compact"}))
        await SimClock().sleep(1)
        assert not making.done(), "this broker has not heard of it yet"
        view.publish(view.image.with_topics([topic(1)]))
        assert (await making).name == "orders"
        (asked,) = line.asked[0][1].topics
        assert (asked.name, asked.num_partitions, asked.replication_factor) == ("orders", -1, -1)
        assert [(config.name, config.value) for config in asked.configs] == [("cleanup.policy", "compact")]
        with pytest.raises(KafkaError) as refused:
            await forwarding.create_topic(NewTopic("others"))
        assert refused.value.code is ErrorCode.invalid_replication_factor
        office.in_office = True
        assert (await forwarding.create_topic(NewTopic("orders"))).name == "orders"
        assert len(line.asked) == 2

    run(story(), seed=1)
