"""The stored state of share partitions, from any broker: asked of the coordinator here, or of one on another broker.

This is what `ShareStates` is for leaders of partitions and for group coordinators. The state topic is created when it
is first needed.

Invariant: error codes are passed on, and a broken connection becomes COORDINATOR_NOT_AVAILABLE. Nothing is repeated
here: whether a write took effect is not known then, and only the caller can tell whether it may come again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.api.share_group_states import read_batches, written_batches
from headrace.client.blocking import ConnectionLost
from headrace.coordinators.runtime import partition_for
from headrace.coordinators.shares.commands import coordinator_key
from headrace.coordinators.shares.coordinator import ShareCoordinator
from headrace.model.image import BrokerImage, ClusterImage
from headrace.model.share_state import STATE_TOPIC, SharePartition, ShareState
from headrace.server.peers import Peers
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class ShareStateDesk:
    def __init__(
        self,
        here: ShareCoordinator,
        image: Callable[[], ClusterImage],
        broker_id: int,
        peers: Peers,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        self._here = here
        self._image = image
        self._broker_id = broker_id
        self._peers = peers
        self._ensure_internal_topic = ensure_internal_topic

    async def initialize(self, partition: SharePartition, state_epoch: int, start_offset: int) -> None:
        elsewhere = await self._elsewhere(partition)
        if elsewhere is None:
            await self._here.initialize(partition, state_epoch, start_offset)
            return
        data = Message(partition=partition.partition, state_epoch=state_epoch, start_offset=start_offset)
        await self._ask(elsewhere, ApiKey.INITIALIZE_SHARE_GROUP_STATE, partition, data)

    async def read(self, partition: SharePartition, leader_epoch: int) -> ShareState:
        elsewhere = await self._elsewhere(partition)
        if elsewhere is None:
            return await self._here.read(partition, leader_epoch)
        data = Message(partition=partition.partition, leader_epoch=leader_epoch)
        answer = await self._ask(elsewhere, ApiKey.READ_SHARE_GROUP_STATE, partition, data)
        return ShareState(answer.state_epoch, leader_epoch, answer.start_offset, batches=read_batches(answer))

    async def write(self, partition: SharePartition, state: ShareState) -> None:
        elsewhere = await self._elsewhere(partition)
        if elsewhere is None:
            await self._here.write(partition, state)
            return
        data = Message(
            partition=partition.partition,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=written_batches(state),
        )
        await self._ask(elsewhere, ApiKey.WRITE_SHARE_GROUP_STATE, partition, data)

    async def delete(self, partition: SharePartition) -> None:
        elsewhere = await self._elsewhere(partition)
        if elsewhere is None:
            await self._here.delete(partition)
            return
        data = Message(partition=partition.partition)
        await self._ask(elsewhere, ApiKey.DELETE_SHARE_GROUP_STATE, partition, data)

    async def summary(self, partition: SharePartition) -> ShareState:
        elsewhere = await self._elsewhere(partition)
        if elsewhere is None:
            return await self._here.summary(partition)
        data = Message(partition=partition.partition, leader_epoch=-1)
        answer = await self._ask(elsewhere, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, partition, data)
        return ShareState(answer.state_epoch, answer.leader_epoch, answer.start_offset, answer.delivery_complete_count)

    async def _elsewhere(self, partition: SharePartition) -> BrokerImage | None:
        """The coordinator, if it is another broker."""
        if STATE_TOPIC not in self._image().topics:
            await self._ensure_internal_topic(STATE_TOPIC)
        image = self._image()
        topic = image.topics.get(STATE_TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.coordinator_not_available, f"{STATE_TOPIC} is being created; try again")
        index = partition_for(coordinator_key(partition), len(topic.partitions))
        leader = topic.partitions[index].leader
        if leader == self._broker_id:
            return None
        broker = image.brokers.get(leader)
        if broker is None:
            raise KafkaError(ErrorCode.coordinator_not_available, f"{STATE_TOPIC}-{index} has no leader; try again")
        return broker

    async def _ask(self, broker: BrokerImage, api_key: ApiKey, partition: SharePartition, data: Message) -> Message:
        topics = [Message(topic_id=partition.topic_id, partitions=[data])]
        try:
            answer = await self._peers.call(broker, api_key, Message(group_id=partition.group, topics=topics))
        except ConnectionLost as error:
            raise KafkaError(ErrorCode.coordinator_not_available, str(error)) from error
        result: Message = answer.results[0].partitions[0]
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), result.error_message or "")
        return result
