"""Transactions over several brokers: requests to remote transaction coordinators, and markers to remote leaders.

`CoordinatorDesk` is called by Produce and TxnOffsetCommit before the first record of a transaction goes into a
partition. It asks the transaction's coordinator, local or remote (AddPartitionsToTxn). `MarkerPost` sends markers to
partitions that other brokers lead (WriteTxnMarkers); those of one turn for the same broker share a request.

Invariant: error codes are passed on, and a broken connection becomes a retriable error. Whether a partition was deleted
is decided only by this broker's own view, since another broker's metadata may be older.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.client.blocking import ConnectionLost
from headrace.coordinators.runtime import partition_for
from headrace.coordinators.transactions.commands import AddPartitions, VerifyPartitions
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.markers import Mark
from headrace.model.image import TRANSACTION_STATE_TOPIC, BrokerImage, ClusterImage
from headrace.model.transaction_end import TransactionEnd
from headrace.server.peers import Peers
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

Image = Callable[[], ClusterImage]


class CoordinatorDesk:
    def __init__(self, here: TransactionCoordinator, image: Image, broker_id: int, peers: Peers) -> None:
        self._here = here
        self._image = image
        self._broker_id = broker_id
        self._peers = peers

    def submit(self, command: AddPartitions | VerifyPartitions) -> asyncio.Future[Any]:
        """Like `TransactionCoordinator.submit`, whichever broker coordinates this id."""
        elsewhere = self._elsewhere(command.transactional_id)
        return self._here.submit(command) if elsewhere is None else asyncio.ensure_future(self._ask(elsewhere, command))

    def _elsewhere(self, transactional_id: str) -> BrokerImage | None:
        image = self._image()
        topic = image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return None if leader == self._broker_id else image.brokers.get(leader)

    async def _ask(
        self, coordinator: BrokerImage, command: AddPartitions | VerifyPartitions
    ) -> ErrorCode | list[ErrorCode]:
        places = list(command.partitions)
        names = dict.fromkeys(topic for topic, _ in places)
        topics = [Message(name=name, partitions=[index for topic, index in places if topic == name]) for name in names]
        transaction = Message(
            transactional_id=command.transactional_id,
            producer_id=command.producer_id,
            producer_epoch=command.epoch,
            verify_only=isinstance(command, VerifyPartitions),
            topics=topics,
        )
        try:
            answer = await self._peers.call(
                coordinator, ApiKey.ADD_PARTITIONS_TO_TXN, Message(transactions=[transaction])
            )
        except ConnectionLost as error:
            raise KafkaError(ErrorCode.coordinator_not_available, str(error)) from error
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        codes = {
            (topic.name, result.partition_index): ErrorCode(result.partition_error_code)
            for topic in answer.results_by_transaction[0].topic_results
            for result in topic.results_by_partition
        }
        if isinstance(command, VerifyPartitions):
            return [codes[place] for place in places]
        return max(codes.values(), key=lambda code: code is not ErrorCode.none)


class MarkerPost:
    def __init__(self, image: Image, broker_id: int, peers: Peers) -> None:
        self._image = image
        self._broker_id = broker_id
        self._peers = peers
        self._bags: dict[int, list[tuple[Mark, asyncio.Future[None]]]] = {}  # by broker: the next request

    def write(self, mark: Mark) -> asyncio.Future[None] | None:
        """One marker, one attempt; None if the partition is led here. KafkaError if it is deleted or has no leader."""
        partition = self._image().partition(mark.topic, mark.partition)
        if partition is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{mark.topic}-{mark.partition} does not exist")
        if partition.leader == self._broker_id:
            return None
        leader = self._image().brokers.get(partition.leader)
        if leader is None:
            raise KafkaError(ErrorCode.leader_not_available, f"{mark.topic}-{mark.partition} has no leader")
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        bag = self._bags.setdefault(leader.id, [])
        bag.append((mark, written))
        if len(bag) == 1:
            asyncio.get_running_loop().call_soon(self._send, leader)
        return written

    def _send(self, leader: BrokerImage) -> None:
        bag = self._bags.pop(leader.id)
        task = asyncio.ensure_future(self._deliver(leader, bag))
        task.add_done_callback(lambda done: _settle(bag, done))

    async def _deliver(self, leader: BrokerImage, bag: list[tuple[Mark, asyncio.Future[None]]]) -> None:
        ends: dict[TransactionEnd, dict[str, list[int]]] = {}
        for mark, _ in bag:
            ends.setdefault(mark.end, {}).setdefault(mark.topic, []).append(mark.partition)
        markers = [_marker(end, topics) for end, topics in ends.items()]
        answer = await self._peers.call(leader, ApiKey.WRITE_TXN_MARKERS, Message(markers=markers))
        codes: dict[tuple[TransactionEnd, str, int], ErrorCode] = {}
        for end, marker in zip(ends, answer.markers, strict=True):
            for topic in marker.topics:
                for result in topic.partitions:
                    codes[end, topic.name, result.partition_index] = ErrorCode(result.error_code)
        for mark, written in bag:
            code = codes.get((mark.end, mark.topic, mark.partition), ErrorCode.not_leader_or_follower)
            if code is ErrorCode.unknown_topic_or_partition:
                code = ErrorCode.not_leader_or_follower  # its metadata is older: it does not know the partition yet
            if not written.done():
                if code is ErrorCode.none:
                    written.set_result(None)
                else:
                    written.set_exception(KafkaError(code))


def _marker(end: TransactionEnd, topics: dict[str, list[int]]) -> Message:
    return Message(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        coordinator_epoch=end.coordinator_epoch,
        transaction_result=end.commit,
        transaction_version=end.version,
        topics=[Message(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
    )


def _settle(bag: list[tuple[Mark, asyncio.Future[None]]], done: asyncio.Future[None]) -> None:
    """Without a response, for whatever reason, every waiting marker gets a retriable error."""
    error = None if done.cancelled() else done.exception()
    for _, written in bag:
        if not written.done():
            written.set_exception(KafkaError(ErrorCode.network_exception, str(error or "the broker is stopping")))
