"""Pulling partitions from their leaders: one conversation with each broker that leads partitions replicated here.

Plugged into partitions as `Pulls` (broker_context.py): they name the leader they follow, and `run` keeps the
conversations going, in the broker's task group. A conversation is one connection and one fetch session. In each round,
partitions that are new to their leader's epoch are reconciled first; then one fetch asks for all. A partition that is
added while a fetch waits for records ends that conversation, and the next one begins at once: elections are rare, and
nobody should wait half a second for them.

Invariant: the offset of a fetch says what this broker has, as safely as the topic asks. On topics with
`headrace.flush=fsync` the next fetch is sent when the records of the last one are on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from headrace.client.blocking import ConnectionLost
from headrace.client.connection import Connection
from headrace.model.image import BrokerImage
from headrace.model.settings import LONG_MAX
from headrace.replicas.broker_context import BrokerContext
from headrace.replicas.partition import Partition
from headrace.replicas.pull_session import PullSession
from headrace.replicas.pulling import Pulled, check
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.net import Net

logger = logging.getLogger(__name__)

EARLIEST = -2

_RECONNECT_S = 0.05
_LONGEST_RECONNECT_S = 1.0
_PATIENCE_S = 5.0  # for a response, beyond the max_wait of a fetch
_RESPONSE_BYTES = 16 << 20
_IDLE_S = 1.0
_LOOK_AGAIN_S = 1.0  # at all partitions, even without errors or new roles
_SOON_MS = 50  # max_wait of a fetch while some partitions are not ready for it
_YIELD_BYTES = 1 << 20


class ReplicaPulls:
    """All conversations; the `Pulls` of a broker."""

    def __init__(self, broker: BrokerContext, net: Net, *, wait_ms: int = 500, partition_bytes: int = 4 << 20) -> None:
        self._broker = broker
        self._net = net
        self._wait_ms = wait_ms
        self._partition_bytes = partition_bytes
        self._conversations: dict[int, Conversation] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            for conversation in self._conversations.values():
                group.create_task(conversation.run())
            await asyncio.get_running_loop().create_future()

    def follow(self, partition: Partition) -> None:
        assert partition.state is not None
        leader = partition.state.leader
        conversation = self._conversations.get(leader)
        if conversation is None:
            conversation = Conversation(leader, self._broker, self._net, self._wait_ms, self._partition_bytes)
            self._conversations[leader] = conversation
            if self._group is not None:
                self._group.create_task(conversation.run())
        conversation.add(partition)

    def stop(self, partition: Partition) -> None:
        for conversation in self._conversations.values():
            conversation.remove(partition)

    def behind(self) -> Mapping[int, int]:
        """By leader, how many partitions are followed."""
        return {leader: len(conversation) for leader, conversation in self._conversations.items()}


class Conversation:
    """With one leader."""

    def __init__(self, leader: int, broker: BrokerContext, net: Net, wait_ms: int, partition_bytes: int) -> None:
        self._leader = leader
        self._broker = broker
        self._net = net
        self._wait_ms = wait_ms
        self._partition_bytes = partition_bytes
        self._pulled: dict[Partition, Pulled] = {}
        self._session = PullSession()
        self._changed: list[Pulled] = []  # by the last response
        self._all_ready = False  # when that was last looked at
        self._looked_s = 0.0
        self._news: asyncio.Future[None] | None = None
        self._fetching: Connection | None = None  # while a fetch waits there for records

    def __len__(self) -> int:
        return len(self._pulled)

    def add(self, partition: Partition) -> None:
        self._pulled[partition] = Pulled(partition, self._broker.broker_id)
        self._all_ready = False
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        if self._fetching is not None:
            self._fetching.close()

    def remove(self, partition: Partition) -> None:
        if self._pulled.pop(partition, None) is not None:
            self._all_ready = False

    # --- the conversation -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        wait_s = _RECONNECT_S
        said = False
        while True:
            try:
                broker = self._broker.brokers.get(self._leader)
                if broker is not None and self._pulled:
                    await self._talk(broker)
                    wait_s, said = _RECONNECT_S, False
                    continue
            except (ConnectionLost, KafkaError, OSError) as error:
                if not said:
                    logger.info("cannot follow broker %d: %s; trying again", self._leader, error)
                    said = True
            await self._news_within(wait_s if self._pulled else _IDLE_S)
            wait_s = min(2 * wait_s, _LONGEST_RECONNECT_S)

    async def _talk(self, broker: BrokerImage) -> None:
        """Until the connection is lost, or a partition was added that must not wait for a fetch to end."""
        client_id = f"headrace-replica-{self._broker.broker_id}"
        connection = Connection(self._net, self._broker.clock, broker.host, broker.port, client_id, _PATIENCE_S)
        try:
            await connection.open()
            self._session.restart()
            while self._pulled:
                self._news = asyncio.get_running_loop().create_future()
                body = await self._question(connection, self._news)
                if body is not None:  # the session counts it as sent, so it must be sent
                    if not await self._fetch(connection, body):
                        return
                elif not self._news.done():
                    await self._news_within(_RECONNECT_S)
        finally:
            connection.close()

    async def _question(self, connection: Connection, news: asyncio.Future[None]) -> Message | None:
        """What to fetch next; None if nothing can be fetched now, or partitions were added that come first.

        Without errors only the partitions that got records are looked at: there may be thousands in all."""
        now_s, rate = self._broker.clock.monotonic(), self._broker.follower_throttle.bytes_per_s
        partition_bytes = min(self._partition_bytes, rate)
        calm = self._all_ready and rate == LONG_MAX and now_s - self._looked_s < _LOOK_AGAIN_S
        if calm and self._session.is_open:
            return self._session.request_more(self._changed, partition_bytes)
        await self._reconcile(connection)
        await self._sync([pulled for pulled in self._due() if not pulled.is_safe and pulled.log.offline is None])
        ready = self._ready()
        self._all_ready, self._looked_s = len(ready) == len(self._pulled), now_s
        return self._session.request(ready, partition_bytes) if ready and not news.done() else None

    async def _news_within(self, seconds: float) -> None:
        if self._news is None or self._news.done():
            self._news = asyncio.get_running_loop().create_future()
        timer = self._broker.clock.call_later(seconds, _wake, self._news)
        await self._news
        timer.cancel()

    def _due(self) -> list[Pulled]:
        now_s = self._broker.clock.monotonic()
        return [pulled for pulled in self._pulled.values() if pulled.not_before_s <= now_s]

    def _ready(self) -> list[Pulled]:
        """Partitions to fetch. A fetch reports what a log has, so all of the log must be as safe as its topic asks."""
        ready = [pulled for pulled in self._due() if pulled.reconciled and not pulled.out_of_range and pulled.is_safe]
        if self._broker.follower_throttle.is_open:
            return ready
        return [pulled for pulled in ready if not pulled.is_throttled]

    def _current(self, pulled: Pulled) -> bool:
        return self._pulled.get(pulled.partition) is pulled

    # --- reconciling ------------------------------------------------------------------------------------------------

    async def _reconcile(self, connection: Connection) -> None:
        """Ask and truncate until both know the same epoch; then find a new start for logs whose next offset is gone."""
        for pulled in [pulled for pulled in self._due() if pulled.is_unfinished]:
            try:
                await pulled.finish()
            except (KafkaError, OSError) as error:
                pulled.failed(error, self._broker.clock.monotonic())
        for pulled in self._due():
            if not pulled.reconciled and pulled.asked_epoch < 0:
                pulled.reconciled = True  # an empty log cannot diverge
        while open_ := [pulled for pulled in self._due() if not pulled.reconciled]:
            asked = {(pulled.partition.topic, pulled.partition.index): (pulled, pulled.asked_epoch) for pulled in open_}
            body = Message(replica_id=self._broker.broker_id, topics=_by_topic(open_, _epoch_question, "topic"))
            answer = await connection.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, body)
            for topic in answer.topics:
                for part in topic.partitions:
                    pulled, epoch = asked[topic.topic, part.partition]
                    if self._current(pulled):
                        try:
                            await pulled.reconcile(epoch, part)
                        except (KafkaError, OSError) as error:
                            pulled.failed(error, self._broker.clock.monotonic())
        for pulled in [pulled for pulled in self._due() if pulled.is_damaged]:
            try:
                if await pulled.partition.followed_log.cut_damage(pulled.epoch):
                    self._session.mention_again((pulled.partition.topic_id, pulled.partition.index))
            except (KafkaError, OSError) as error:
                pulled.failed(error, self._broker.clock.monotonic())
        lost = [pulled for pulled in self._due() if pulled.out_of_range]
        if lost:
            await self._find_start(connection, lost)

    async def _find_start(self, connection: Connection, lost: Sequence[Pulled]) -> None:
        by_place = {(pulled.partition.topic, pulled.partition.index): pulled for pulled in lost}
        body = Message(replica_id=self._broker.broker_id, topics=_by_topic(lost, _start_question, "name"))
        answer = await connection.call(ApiKey.LIST_OFFSETS, body)
        for topic in answer.topics:
            for part in topic.partitions:
                pulled = by_place[topic.name, part.partition_index]
                if self._current(pulled):
                    try:
                        check(part.error_code)
                        await pulled.start_over(part.offset)
                    except (KafkaError, OSError) as error:
                        pulled.failed(error, self._broker.clock.monotonic())

    # --- fetching ---------------------------------------------------------------------------------------------------

    async def _fetch(self, connection: Connection, body: Message) -> bool:
        """One round; False if partitions were added, so that this conversation has to end."""
        body.replica_id = self._broker.broker_id
        body.replica_state = Message(replica_id=self._broker.broker_id, replica_epoch=self._broker.broker_epoch or 0)
        body.max_wait_ms = self._wait_ms if self._all_ready else min(self._wait_ms, _SOON_MS)
        body.min_bytes, body.max_bytes = 1, _RESPONSE_BYTES
        news, self._fetching = self._news, connection
        try:
            answer = await connection.send(ApiKey.FETCH, body, timeout_s=self._wait_ms / 1000 + _PATIENCE_S)
        except ConnectionLost:
            if news is not None and news.done():
                return False
            raise
        finally:
            self._fetching = None
        if answer.error_code in (ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch):
            self._session.restart()
            return True
        check(answer.error_code)
        await self._take(answer)
        self._session.answered(answer.session_id)
        return True

    async def _take(self, answer: Message) -> None:
        self._changed = []
        unsynced: list[Pulled] = []
        unyielded = 0
        for topic in answer.responses:
            for part in topic.partitions:
                key = (topic.topic_id, part.partition_index)
                pulled = self._session.pulled(key)
                if pulled is None or not self._current(pulled):
                    continue
                try:
                    if pulled.is_throttled:
                        self._broker.follower_throttle.passed(len(part.records or b""))
                    self._changed.append(pulled)
                    await pulled.take(part)
                    self._all_ready = self._all_ready and not pulled.out_of_range
                    if pulled.log.config.fsync and part.records:
                        unsynced.append(pulled)
                except (KafkaError, OSError) as error:
                    self._all_ready = False
                    self._session.mention_again(key)
                    pulled.failed(error, self._broker.clock.monotonic())
                unyielded += len(part.records or b"")
                if unyielded >= _YIELD_BYTES:
                    unyielded = 0
                    await asyncio.sleep(0)
        await self._sync(unsynced)

    async def _sync(self, unsynced: Sequence[Pulled]) -> None:
        synced = await asyncio.gather(*(self._broker.sync(p.log) for p in unsynced), return_exceptions=True)
        for pulled, outcome in zip(unsynced, synced, strict=True):
            if isinstance(outcome, OSError):
                self._all_ready = False
                pulled.failed(outcome, self._broker.clock.monotonic())


def _by_topic(pulled: Sequence[Pulled], question: Callable[[Pulled], Message], name: str) -> list[Message]:
    topics: dict[str, Message] = {}
    for one in pulled:
        topic = topics.setdefault(one.partition.topic, Message(**{name: one.partition.topic}, partitions=[]))
        topic.partitions.append(question(one))
    return list(topics.values())


def _epoch_question(pulled: Pulled) -> Message:
    partition = pulled.partition
    return Message(partition=partition.index, current_leader_epoch=pulled.epoch, leader_epoch=pulled.asked_epoch)


def _start_question(pulled: Pulled) -> Message:
    partition = pulled.partition
    return Message(partition_index=partition.index, current_leader_epoch=pulled.epoch, timestamp=EARLIEST)


def _wake(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)
