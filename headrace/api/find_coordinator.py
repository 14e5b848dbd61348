"""FindCoordinator, v0 to v6: which broker coordinates a group.

A group belongs to the partition of `__consumer_offsets` that its name hashes to, and that partition's leader is its
coordinator. The topic is made when the first group is looked for. From v4 on a request has many keys; before, one,
and the answer stands at the top level.

Known gaps: only groups (key type 0). Transactional ids (1) and share groups (2) are refused with INVALID_REQUEST and a
sentence: the Java client then fails at once and shows it, where COORDINATOR_NOT_AVAILABLE would make it ask again for
`max.block.ms`; librdkafka asks again in either case until its own time is up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.api.contract import Peer, Reply, Request
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.runtime import partition_for
from headrace.model.image import GROUP_OFFSETS_TOPIC, BrokerImage, TopicImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

GROUP = 0
_OTHER_KINDS = {1: "transactions", 2: "share groups"}

AddressOf = Callable[[Peer, BrokerImage], tuple[str, int]]


class FindCoordinator:
    def __init__(
        self, topics: Topics, address_of: AddressOf, ensure_offsets_topic: Callable[[], Awaitable[None]]
    ) -> None:
        self._topics = topics
        self._address_of = address_of
        self._ensure_offsets_topic = ensure_offsets_topic

    def __call__(self, request: Request) -> Reply:
        body = request.body
        keys = body.coordinator_keys if request.version >= 4 else [body.key]
        if body.key_type != GROUP:
            kind = _OTHER_KINDS.get(body.key_type, f"coordinators of type {body.key_type}")
            refusal = KafkaError(ErrorCode.invalid_request, f"this broker does not serve {kind}")
            return _response([_refused(key, refusal) for key in keys])
        topic = self._topics.image().topics.get(GROUP_OFFSETS_TOPIC)
        if topic is None:
            return self._after_making_the_topic(keys, request.peer)
        return _response([self._find(key, topic, request.peer) for key in keys])

    async def _after_making_the_topic(self, keys: list[str], peer: Peer) -> Message:
        try:
            await self._ensure_offsets_topic()
            topic = self._topics.image().topics.get(GROUP_OFFSETS_TOPIC)
            if topic is None:
                raise KafkaError(ErrorCode.coordinator_not_available, f"{GROUP_OFFSETS_TOPIC} is being made; try again")
        except KafkaError as error:
            # Whatever kept the topic from being made, clients must take it as a reason to ask again.
            again = KafkaError(ErrorCode.coordinator_not_available, str(error))
            return _response([_refused(key, again) for key in keys])
        return _response([self._find(key, topic, peer) for key in keys])

    def _find(self, key: str, topic: TopicImage, peer: Peer) -> Message:
        partition = topic.partitions[partition_for(key, len(topic.partitions))]
        broker = self._topics.image().brokers.get(partition.leader)
        if broker is None:
            place = f"{GROUP_OFFSETS_TOPIC}-{partition.index}"
            return _refused(key, KafkaError(ErrorCode.coordinator_not_available, f"{place} has no leader; try again"))
        host, port = self._address_of(peer, broker)
        return Message(key=key, node_id=broker.id, host=host, port=port, error_code=0, error_message=None)


def _refused(key: str, error: KafkaError) -> Message:
    return Message(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error))


def _response(coordinators: list[Message]) -> Message:
    """Both layouts at once; the version decides which is sent."""
    response = Message(coordinators=coordinators)
    if coordinators:
        only = coordinators[0]
        response.node_id, response.host, response.port = only.node_id, only.host, only.port
        response.error_code, response.error_message = only.error_code, only.error_message
    return response
