"""FindCoordinator, v0 to v6: which broker coordinates a group, a transactional id, or a share partition.

A group's id hashes to a partition of `__consumer_offsets`, a transactional id to one of `__transaction_state`, and
"group:topic id:partition" of a share partition (key type 2) to one of `__share_group_state`; the leader of that
partition is the coordinator. The topic is created by the first request that needs it. From v4 on a request has many
keys; before, it has one, and the result is at the top level of the response.

While a leader is being elected, the response waits for it, at most one second: librdkafka asks three times within a
third of a second for a transaction, and if all three are rejected it waits forever, whatever its timeout.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.api.contract import Peer, Reply, Request, Steps
from headrace.api.known_brokers import AddressOf
from headrace.api.pieces import Pace, finish
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.runtime import partition_for
from headrace.coordinators.shares.commands import check_coordinator_key
from headrace.model.image import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from headrace.model.share_state import STATE_TOPIC
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

TOPICS = {0: GROUP_OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC, 2: STATE_TOPIC}
_SHARE_PARTITION = 2
_ELECTION_S = 1.0  # not longer, since later requests on this connection wait as well
_LOOK_S = 0.1


class FindCoordinator:
    def __init__(
        self,
        topics: Topics,
        address_of: AddressOf,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._address_of = address_of
        self._ensure_internal_topic = ensure_internal_topic
        self._clock = clock

    def __call__(self, request: Request) -> Reply:
        body = request.body
        keys = body.coordinator_keys if request.version >= 4 else [body.key]
        name = TOPICS.get(body.key_type)
        if name is None:
            kind = f"coordinators of type {body.key_type}"
            refusal = KafkaError(ErrorCode.invalid_request, f"this broker does not support {kind}")
            return _response([_refused(key, refusal) for key in keys])
        if body.key_type == _SHARE_PARTITION:
            try:
                for key in keys:
                    check_coordinator_key(key)
            except KafkaError as error:
                return _response([_refused(key, error) for key in keys])
        if name not in self._topics.image().topics:
            return self._after_making_the_topic(name, keys, request.peer)
        return self._found(name, keys, request.peer)

    def _found(self, name: str, keys: list[str], peer: Peer) -> Steps[Message | Awaitable[Message]]:
        found = yield from self._find(name, keys, peer)
        return _response(found) if _all_known(found) else self._after_an_election(name, keys, peer)

    async def _after_making_the_topic(self, name: str, keys: list[str], peer: Peer) -> Message:
        try:
            await self._ensure_internal_topic(name)
        except KafkaError as error:
            # Whatever prevented the creation of the topic, clients must get an error that they retry.
            again = KafkaError(ErrorCode.coordinator_not_available, str(error))
            return _response([_refused(key, again) for key in keys])
        return await self._after_an_election(name, keys, peer)

    async def _after_an_election(self, name: str, keys: list[str], peer: Peer) -> Message:
        give_up_at = self._clock.monotonic() + _ELECTION_S
        while not _all_known(found := await finish(self._find(name, keys, peer))):
            if self._clock.monotonic() >= give_up_at:
                break
            await self._clock.sleep(_LOOK_S)
        return _response(found)

    def _find(self, name: str, keys: list[str], peer: Peer) -> Steps[list[Message]]:
        image = self._topics.image()
        topic = image.topics.get(name)
        if topic is None:
            made = KafkaError(ErrorCode.coordinator_not_available, f"{name} is being created; try again")
            return [_refused(key, made) for key in keys]
        found, pace = [], Pace()
        for key in keys:
            if pace.is_over():
                yield
            index = partition_for(key, len(topic.partitions))
            broker = image.brokers.get(topic.partitions[index].leader)
            if broker is None:
                problem = f"{name}-{index} has no leader; try again"
                found.append(_refused(key, KafkaError(ErrorCode.coordinator_not_available, problem)))
            else:
                host, port = self._address_of(peer, broker)
                found.append(
                    Message(key=key, node_id=broker.id, host=host, port=port, error_code=0, error_message=None)
                )
        return found


def _all_known(found: list[Message]) -> bool:
    return all(answer.error_code == 0 for answer in found)


def _refused(key: str, error: KafkaError) -> Message:
    return Message(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error))


def _response(coordinators: list[Message]) -> Message:
    """Has the fields of both layouts; the version decides which are sent."""
    response = Message(coordinators=coordinators)
    if coordinators:
        only = coordinators[0]
        response.node_id, response.host, response.port = only.node_id, only.host, only.port
        response.error_code, response.error_message = only.error_code, only.error_message
    return response
