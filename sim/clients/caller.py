"""A simulated client's access to the cluster: connections, partition leaders, and coordinators.

All other clients of this package use it. A call either returns the response or raises ConnectionLost. Retrying is up to
the caller, because only the caller knows the effect of a second attempt. Built on the asyncio driver that brokers use
between themselves (headrace/client/connection.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from headrace.client.blocking import Address, ConnectionLost
from headrace.client.connection import Connection
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.net import Net

GROUP, TRANSACTION = 0, 1
_TIMEOUT_S = 4.0
_LATEST, _EARLIEST = -1, -2
_TOPIC = 2  # a resource type


class Nobody(Exception):
    """There is no leader or coordinator at the moment: retry later."""


class Caller:
    def __init__(self, net: Net, clock: Clock, bootstrap: Sequence[Address], name: str, seed: int) -> None:
        self.random = random.Random(seed)
        self._net = net
        self._clock = clock
        self._bootstrap = list(bootstrap)
        self._name = name
        self._connections: dict[Address, Connection] = {}
        self._leaders: dict[tuple[str, int], tuple[Address, int]] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    # --- asking -----------------------------------------------------------------------------------------------------

    async def connection(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = Connection(self._net, self._clock, *address, self._name, _TIMEOUT_S)
            await connection.open()
            self._connections[address] = connection
        return connection

    async def at(self, address: Address, api_key: int, message: Message, version: int | None = None) -> Message:
        return await (await self.connection(address)).call(api_key, message, version)

    async def anywhere(self, api_key: int, message: Message, version: int | None = None) -> Message:
        """Ask the brokers in random order until one answers."""
        order = self.random.sample(self._bootstrap, len(self._bootstrap))
        for address in order[:-1]:
            try:
                return await self.at(address, api_key, message, version)
            except ConnectionLost:
                continue
        return await self.at(order[-1], api_key, message, version)

    async def leader(self, topic: str, partition: int) -> tuple[Address, int]:
        """The leader's address and epoch; requested if unknown."""
        if (topic, partition) not in self._leaders:
            await self._ask_leaders(topic)
        if (topic, partition) not in self._leaders:
            raise Nobody(f"{topic}-{partition} has no leader")
        return self._leaders[topic, partition]

    async def _ask_leaders(self, topic: str) -> None:
        body = Message(topics=[Message(name=topic)], allow_auto_topic_creation=False)
        answer = await self.anywhere(ApiKey.METADATA, body)
        places = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        for found in answer.topics:
            for part in found.partitions:
                if part.leader_id in places:
                    self._leaders[topic, part.partition_index] = (places[part.leader_id], part.leader_epoch)

    def forget_leader(self, topic: str, partition: int) -> None:
        self._leaders.pop((topic, partition), None)

    async def coordinator(self, kind: int, key: str) -> Address:
        if (kind, key) not in self._coordinators:
            body = Message(key=key, key_type=kind, coordinator_keys=[key])
            (place,) = (await self.anywhere(ApiKey.FIND_COORDINATOR, body)).coordinators
            if place.error_code != ErrorCode.none:
                raise Nobody(f"nobody coordinates {key}: {ErrorCode(place.error_code).name}")
            self._coordinators[kind, key] = Address(place.host, place.port)
        return self._coordinators[kind, key]

    async def at_coordinator(
        self, kind: int, key: str, api_key: int, message: Message, version: int | None = None
    ) -> Message:
        place = await self.coordinator(kind, key)
        try:
            return await self.at(place, api_key, message, version)
        except ConnectionLost:
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    async def pause(self) -> None:
        """Before the next attempt."""
        await asyncio.sleep(self.random.uniform(0.05, 0.4))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # --- what several clients need ----------------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int, settings: dict[str, str], replicas: int = -1) -> None:
        """Until it is there."""
        wanted = Message(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[Message(name=key, value=value) for key, value in settings.items()],
        )
        while True:
            try:
                answer = await self.anywhere(ApiKey.CREATE_TOPICS, Message(topics=[wanted], timeout_ms=5000))
                if answer.topics[0].error_code in (ErrorCode.none, ErrorCode.topic_already_exists):
                    return
            except ConnectionLost:
                pass
            await self.pause()

    async def producer_id(self) -> tuple[int, int]:
        """A new one of an idempotent producer, with its epoch."""
        body = Message(transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
        while True:
            try:
                answer = await self.anywhere(ApiKey.INIT_PRODUCER_ID, body)
                if answer.error_code == ErrorCode.none:
                    return answer.producer_id, answer.producer_epoch
            except ConnectionLost:
                pass
            await self.pause()

    async def set_topic(self, name: str, setting: str, value: str) -> None:
        """Until it is set."""
        config = Message(name=setting, config_operation=0, value=value)
        resource = Message(resource_type=_TOPIC, resource_name=name, configs=[config])
        while True:
            try:
                body = Message(resources=[resource], validate_only=False)
                answer = await self.anywhere(ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
                if answer.responses[0].error_code == ErrorCode.none:
                    return
            except ConnectionLost:
                pass
            await self.pause()

    async def end_offset(self, topic: str, partition: int, *, stable: bool = False) -> int:
        """The high watermark, or the last stable offset, from the leader; raises Nobody on an error."""
        return await self._list_offset(topic, partition, _LATEST, stable=stable)

    async def start_offset(self, topic: str, partition: int) -> int:
        return await self._list_offset(topic, partition, _EARLIEST)

    async def _list_offset(self, topic: str, partition: int, at: int, *, stable: bool = False) -> int:
        place, epoch = await self.leader(topic, partition)
        part = Message(partition_index=partition, current_leader_epoch=epoch, timestamp=at)
        body = Message(replica_id=-1, isolation_level=int(stable), topics=[Message(name=topic, partitions=[part])])
        try:
            answer = await self.at(place, ApiKey.LIST_OFFSETS, body)
        except ConnectionLost:
            self.forget_leader(topic, partition)
            raise
        told: Any = answer.topics[0].partitions[0]
        if told.error_code != ErrorCode.none:
            self.forget_leader(topic, partition)
            raise Nobody(ErrorCode(told.error_code).name)
        return int(told.offset)
