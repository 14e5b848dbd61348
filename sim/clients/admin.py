"""An admin client: creates and deletes topics, triggers preferred leader elections, and moves partitions.

Its requests may fail, immediately or later; failures are ignored. The topics of the other clients are moved but never
deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headrace.client.blocking import ConnectionLost
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import Message
from sim.clients.caller import Caller

_BY_NAME = 5  # the last version of DeleteTopics that names topics in a plain list
_TIMEOUT_MS = 5000
_REPLICAS = 3


class Admin:
    def __init__(self, caller: Caller, topics: Mapping[str, int], brokers: int) -> None:
        self._caller = caller
        self._topics = topics
        self._brokers = range(1, brokers + 1)
        self._made = 0

    async def run(self, stop: asyncio.Event) -> None:
        chance = self._caller.random
        while not stop.is_set():
            await asyncio.sleep(chance.uniform(1, 8))
            act = chance.choice([self._create, self._delete, self._elect, self._move])
            try:
                await act()
            except ConnectionLost:
                continue

    async def _create(self) -> None:
        self._made += 1
        topic = Message(
            name=f"passing-{self._made}", num_partitions=2, replication_factor=-1, assignments=[], configs=[]
        )
        await self._caller.anywhere(ApiKey.CREATE_TOPICS, Message(topics=[topic], timeout_ms=_TIMEOUT_MS))

    async def _delete(self) -> None:
        if self._made:
            name = f"passing-{self._caller.random.randint(1, self._made)}"
            await self._caller.anywhere(
                ApiKey.DELETE_TOPICS, Message(topic_names=[name], timeout_ms=_TIMEOUT_MS), _BY_NAME
            )

    async def _elect(self) -> None:
        await self._caller.anywhere(
            ApiKey.ELECT_LEADERS, Message(election_type=0, topic_partitions=None, timeout_ms=_TIMEOUT_MS)
        )

    async def _move(self) -> None:
        chance = self._caller.random
        name = chance.choice(sorted(self._topics))
        partition = Message(
            partition_index=chance.randrange(self._topics[name]),
            replicas=chance.sample(self._brokers, min(_REPLICAS, len(self._brokers))),
        )
        topic = Message(name=name, partitions=[partition])
        body = Message(timeout_ms=_TIMEOUT_MS, topics=[topic])
        await self._caller.anywhere(ApiKey.ALTER_PARTITION_REASSIGNMENTS, body)
