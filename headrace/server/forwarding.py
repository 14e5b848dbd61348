"""Requests that only the controller can fulfil, passed on to it by whichever broker they reach.

Clients ask any broker to make a topic; one that is not the controller sends the request on, in the same version, and
relays the answer. If there is no controller, or it cannot be reached, this waits for one, as long as the request
allows. Once the request was sent it is not sent again: it may have been done. Then, and when the time is up, the
handler here answers in its API's own words that it is not the controller, which clients take as a reason to try again.
A request that was passed on once is never passed on again, so two brokers with outdated images do not send it to and
fro. Such a request is recognized by its client id, which holds the token of the sender's registration. A client that
uses the same name without the token of a live broker is treated as any other client. The handler is given the name
alone, so the token goes no further.

The same for what a broker itself needs made: topics that clients ask for before they exist, and internal topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from headrace.api.contract import Handler, Reply, Request
from headrace.api.pieces import settled
from headrace.api.table import Api
from headrace.client.blocking import ConnectionLost
from headrace.client.connection import Connection
from headrace.cluster.controller import Controller
from headrace.cluster.topic_changes import NewTopic
from headrace.cluster.view import ClusterView
from headrace.model.image import ClusterImage, TopicImage
from headrace.server.peers import Peers
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

NAME = "headrace-forwarding"
_CREATE_TOPICS_VERSION = 7
FOR_THE_CONTROLLER = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    }
)
_LONGEST_S = 30.0
_MAKE_S = 10.0
_AGAIN_S = 0.1


def forwarding_name(image: ClusterImage, broker_id: int) -> str:
    """The client id of what this broker passes on: `NAME:TOKEN`, or the name alone while it is not registered."""
    broker = image.brokers.get(broker_id)
    return NAME if broker is None else f"{NAME}:{broker.token.text}"


def is_forwarded(image: ClusterImage, client_id: str) -> bool:
    """Whether a live broker sent a request with this client id."""
    name, _, token = client_id.partition(":")
    return name == NAME and any(broker.token.matches(token) for broker in image.brokers.values())


class Forwarding:
    def __init__(self, controller: Controller, view: ClusterView, peers: Peers, clock: Clock) -> None:
        self._controller = controller
        self._view = view
        self._peers = peers
        self._clock = clock

    def over(self, table: Mapping[int, Api]) -> dict[int, Api]:
        """The same table, with the controller's requests passed on where this broker is not the controller."""
        return {
            key: replace(api, handler=self._passing_on(api.handler)) if key in FOR_THE_CONTROLLER else api
            for key, api in table.items()
        }

    def _passing_on(self, handler: Handler) -> Handler:
        def handle(request: Request) -> Reply:
            forwarded = is_forwarded(self._view.image, request.client_id)
            if forwarded:
                request = replace(request, client_id=NAME)
            if self._controller.in_office or forwarded:
                return handler(request)
            return self._pass_on(request, handler)

        return handle

    async def _pass_on(self, request: Request, handler: Handler) -> Message:
        asked_s = getattr(request.body, "timeout_ms", 0) / 1000
        patience_s = min(asked_s or _LONGEST_S, _LONGEST_S)
        connection = await self._reach_controller(patience_s)
        if connection is not None:
            try:
                return await connection.call(
                    request.api_key, request.body, request.version, timeout_s=patience_s + _LONGEST_S
                )
            except ConnectionLost:
                pass
        return await settled(handler(request))

    async def _reach_controller(self, patience_s: float) -> Connection | None:
        """None: this broker is the controller by now, or nobody was for too long."""
        deadline_s = self._clock.monotonic() + patience_s
        while not self._controller.in_office:
            image = self._view.image
            controller = image.brokers.get(image.controller_id)
            if controller is not None:
                try:
                    return await self._peers.reach(controller)
                except ConnectionLost:
                    pass  # it is gone, and another one will be elected
            if self._clock.monotonic() >= deadline_s:
                return None
            await self._clock.sleep(_AGAIN_S)
        return None

    # --- what this broker itself needs ------------------------------------------------------------------------------

    def create_topic(self, new: NewTopic) -> asyncio.Future[TopicImage]:
        """Done when the topic is there and this broker knows of it; KafkaError if it was refused."""
        if self._controller.in_office:
            return self._controller.create_topic(new)
        return asyncio.ensure_future(self._have_made(new))

    async def _have_made(self, new: NewTopic) -> TopicImage:
        connection = await self._reach_controller(_MAKE_S)
        if connection is None:
            if self._controller.in_office:
                return await self._controller.create_topic(new)
            raise KafkaError(ErrorCode.not_controller, f"no controller could be reached to make topic {new.name!r}")
        wanted = Message(
            name=new.name,
            num_partitions=new.partitions,
            replication_factor=new.replication_factor,
            assignments=[],
            configs=[Message(name=name, value=value) for name, value in new.settings.items()],
        )
        body = Message(topics=[wanted], timeout_ms=int(_MAKE_S * 1000), validate_only=False)
        try:
            answer = await connection.call(ApiKey.CREATE_TOPICS, body, _CREATE_TOPICS_VERSION)
        except ConnectionLost as error:
            raise KafkaError(ErrorCode.not_controller, f"the controller went while it made {new.name!r}") from error
        made = answer.topics[0]
        code = ErrorCode(made.error_code)
        if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise KafkaError(code, made.error_message)
        return await seen(self._view, self._clock, lambda image: image.topics.get(new.name), _MAKE_S)


async def seen(
    view: ClusterView, clock: Clock, look: Callable[[ClusterImage], TopicImage | None], patience_s: float
) -> TopicImage:
    """Waits until the view shows it. KafkaError(REQUEST_TIMED_OUT) if it does not."""
    deadline_s = clock.monotonic() + patience_s
    while (found := look(view.image)) is None:
        if clock.monotonic() >= deadline_s:
            raise KafkaError(ErrorCode.request_timed_out, "it was made, but this broker has not heard of it yet")
        await clock.sleep(0.01)
    return found
