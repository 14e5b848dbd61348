"""The current leader in NOT_LEADER_OR_FOLLOWER responses (KIP-951), so that clients need no Metadata request.

Produce (since v10) and Fetch (since v16) have the fields: leader and epoch for the partition, and the leader's address
once in the response. They come from this broker's image; a client uses them only if the epoch is above the one it
knows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from headrace.api.contract import Peer
from headrace.api.known_brokers import AddressOf
from headrace.model.image import ClusterImage
from headrace.wire.messages import Message


class LeaderHints:
    def __init__(self, image: Callable[[], ClusterImage], address_of: AddressOf) -> None:
        self._image = image
        self._address_of = address_of

    def point(self, peer: Peer, topic: str | uuid.UUID, index: int, answer: Message, response: Message) -> None:
        """Add the leader to the partition's `answer`, and its address to the `response`."""
        image = self._image()
        found = image.topics_by_id.get(topic) if isinstance(topic, uuid.UUID) else image.topics.get(topic)
        partitions = () if found is None else image.partitions_of(found)
        if not 0 <= index < len(partitions):
            return
        known = partitions[index]
        answer.current_leader = Message(leader_id=known.leader, leader_epoch=known.leader_epoch)
        leader = image.brokers.get(known.leader)
        if leader is not None and all(told.node_id != leader.id for told in response.node_endpoints):
            host, port = self._address_of(peer, leader)
            response.node_endpoints.append(Message(node_id=leader.id, host=host, port=port, rack=leader.rack))
