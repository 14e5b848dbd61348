"""Three hosts that replicate one partition, in one process and in virtual time: real logs, pulls, handlers and frames;
the cluster room is played by the test, which stores the partition's state and publishes it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from headrace.api.api_versions import ApiVersions
from headrace.api.contract import Caller, Handler, Peer, Request
from headrace.api.fetch import Fetch
from headrace.api.fetch_reading import FetchReading
from headrace.api.fetch_sessions import FetchSessions
from headrace.api.gate import Gate
from headrace.api.leader_hints import LeaderHints
from headrace.api.list_offsets import ListOffsets
from headrace.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from headrace.api.operations import NONE
from headrace.api.pieces import settled
from headrace.api.reply_budget import ReplyBudget
from headrace.api.table import Api
from headrace.api.view_fetch import Views
from headrace.log.logs import Logs
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.replicas.watermarks import Watermarks
from headrace.server.dispatch import Dispatcher
from headrace.server.listener import Listener
from headrace.server.requests_seen import RequestsSeen
from headrace.wire.api_keys import ApiKey
from headrace.wire.batches import walk
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.entropy import SeededEntropy
from sim import loop as sim_loop
from sim.computing import SimComputing
from sim.disk import SimDisk
from sim.loop import SimClock
from sim.net import SimNetwork
from tests.unit.server.long import long_work

TOPIC, TOPIC_ID = "orders", uuid.UUID(int=7)
FOLDER = Path("/data")
FETCH = 1
BROKERS = (1, 2, 3)


class Node:
    """One broker, as far as replication needs one. Its disk stays when it is started again."""

    def __init__(self, broker_id: int, trio: Trio) -> None:
        self.id = broker_id
        self.epoch = 0
        self.alive = False
        self.disk = SimDisk()
        self.disk.make_dirs(FOLDER)
        self.disk.sync_dir(FOLDER.parent)
        self.in_touch = True
        self.clock = trio.clock
        self._trio = trio
        self._image = ClusterImage("", -1)

    async def start(self) -> None:
        clock, net = self._trio.clock, self._trio.network.host(f"broker-{self.id}")
        self.epoch += 1
        self.logs = Logs(self.disk, clock, FOLDER)
        await self.logs.open(lambda _: None)
        self.watermarks = Watermarks(self.disk, FOLDER)
        self.watermarks.load()
        self.host = ReplicaHost(self.id, self.logs, clock, {}, lag_s=self._trio.lag_s, watermarks=self.watermarks)
        self.host.join_cluster(net, self._trio, lambda: self.in_touch)
        self.host.registered(self.epoch)
        self.hints = LeaderHints(lambda: self._image, lambda _, broker: (broker.host, broker.port))
        reading = FetchReading(self.host, self.disk.off_loop, 50 << 20, self.hints, ReplyBudget(100 << 20))
        sessions = FetchSessions(clock, SeededEntropy(1), 100, 10_000)
        self.fetch = Fetch(
            self.host, Gate(), sessions, clock, SeededEntropy(2), reading, reading, Views(SimComputing(), clock)
        )
        self.listener = Listener(net, clock, max_frame_bytes=100 << 20, max_connections=100, max_idle_s=1e9)
        await self.listener.bind(f"broker-{self.id}", 0)
        await self.listener.open(Dispatcher(self._table(), RequestsSeen(), clock, long_work()))
        self.alive = True
        self._image = ClusterImage("", -1)
        self._running = asyncio.ensure_future(self.host.run())

    def _table(self) -> dict[int, Api]:
        served = [
            Api(ApiKey.FETCH, 4, 17, NONE, self.fetch),
            Api(ApiKey.LIST_OFFSETS, 1, 10, NONE, ListOffsets(self.host, self.disk.off_loop)),
            Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, NONE, OffsetForLeaderEpoch(self.host)),
        ]
        versions = ApiVersions([(api.key, api.lowest, api.highest) for api in served], {})
        apis = [*served, Api(ApiKey.API_VERSIONS, 0, 4, NONE, versions)]
        return {api.key: api for api in apis}

    async def stop(self, *, crash: bool = False) -> None:
        self.alive = False
        self.listener.close()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        if crash:
            self.logs.abandon()
        else:
            self.host.save_watermarks()
            await self.logs.close()

    def check(self) -> None:
        """Nothing of it has died."""
        if self._running.done():
            self._running.result()

    def see(self, image: ClusterImage) -> None:
        old, self._image = self._image, image
        self.host.follow(old, image)

    @property
    def partition(self) -> Partition:
        return self.host.find(TOPIC, 0)

    def batches(self) -> list[tuple[int, int, int]]:
        """(base offset, leader epoch, CRC) of every batch."""
        log, found = self.partition.log, list[tuple[int, int, int]]()
        offset = log.start_offset
        while offset < log.end_offset:
            data = log.read(offset, 1 << 20, log.end_offset, at_least_one=True).load()
            for _, header in walk(data):
                found.append((header.base_offset, header.leader_epoch, header.crc))
                offset = header.next_offset
        return found

    async def ask(self, handler: Handler, version: int, **fields: Any) -> Message:
        reply = handler(Request(0, version, "test", Message(**fields), Caller(Peer("", 0, "", 0))))
        return await settled(reply)

    async def fetched(
        self,
        *,
        epoch: int = -1,
        index: int = 0,
        wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        part_bytes: int = 1 << 20,
    ) -> Message:
        """What a consumer without a session gets that reads from the beginning."""
        part = Message(partition=index, fetch_offset=0, partition_max_bytes=part_bytes, current_leader_epoch=epoch)
        part.last_fetched_epoch = -1
        return await self.ask(
            self.fetch,
            17,
            topics=[Message(topic="", topic_id=TOPIC_ID, partitions=[part])],
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=0,
            session_epoch=-1,
            replica_id=-1,
            replica_state=Message(replica_id=-1, replica_epoch=-1),
            isolation_level=0,
            rack_id="",
        )


class Trio:
    """The cluster room, and the three nodes. `state` is what is stored of the partition."""

    def __init__(self, settings: dict[str, str], lag_s: float = 10.0) -> None:
        self.clock = SimClock()
        self.network = SimNetwork(1)
        self.lag_s = lag_s
        self.settings = settings
        self.state = PartitionImage(0, BROKERS, BROKERS, 1, 0, 0, (1, 1, 1))
        self.nodes = {broker_id: Node(broker_id, self) for broker_id in BROKERS}
        self.rates: dict[str, str] = {}  # settings of all brokers
        self.writes_fail: Exception | None = None
        self.joins_refused = 0
        self.refuse_joins = False  # as the store does when who joins has been started again
        self.writes_lost = False  # they take effect, and nobody hears of it
        self.history: list[PartitionImage] = [self.state]
        self.hidden_from: set[int] = set()  # brokers that do not hear of changes

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()
        self.publish()

    async def close(self) -> None:
        for node in self.nodes.values():
            if node.alive:
                node.check()
                await node.stop(crash=True)

    def publish(self) -> None:
        brokers = {
            node.id: BrokerImage(node.id, *node.listener.address, f"rack-{node.id}", node.epoch)
            for node in self.nodes.values()
            if node.alive
        }
        topic = TopicImage(TOPIC, TOPIC_ID, (self.state,), self.settings)
        image = ClusterImage("c", 1, brokers).with_topics([topic]).with_broker_settings("", self.rates, 0)
        for node in self.nodes.values():
            if node.alive and node.id not in self.hidden_from:
                node.see(image)

    def store(self, **changes: Any) -> None:
        self.state = replace(self.state, version=self.state.version + 1, **changes)
        self.history.append(self.state)
        self.publish()

    def elect(self, broker_id: int, isr: Sequence[int] | None = None) -> None:
        members = tuple(self.state.isr if isr is None else isr)
        epochs = tuple(self.nodes[member].epoch for member in members)
        self.store(leader=broker_id, leader_epoch=self.state.leader_epoch + 1, isr=members, isr_epochs=epochs)

    # --- as IsrStore -------------------------------------------------------------------------------------------------

    def change(
        self, topic: str, partition: PartitionImage, joins: Sequence[tuple[int, int]]
    ) -> asyncio.Future[PartitionImage]:
        done: asyncio.Future[PartitionImage] = asyncio.get_running_loop().create_future()
        self.clock.call_later(0.01, self._change, partition, joins, done)
        return done

    def _change(
        self, wanted: PartitionImage, joins: Sequence[tuple[int, int]], done: asyncio.Future[PartitionImage]
    ) -> None:
        if self.writes_fail is not None:
            done.set_exception(self.writes_fail)
            return
        if wanted.leader_epoch != self.state.leader_epoch:
            done.set_exception(KafkaError(ErrorCode.not_leader_or_follower))
            return
        if self.refuse_joins and joins:
            self.joins_refused += 1
        elif wanted.version == self.state.version and all(self.nodes[b].epoch == epoch for b, epoch in joins):
            enough = min(int(self.settings.get("min.insync.replicas", 1)), len(wanted.replicas))
            left = set(zip(self.state.isr, self.state.isr_epochs, strict=True)) | set(self.state.elr)
            elr = tuple(sorted(entry for entry in left if entry[0] not in wanted.isr))
            self.state = replace(wanted, version=wanted.version + 1, elr=() if len(wanted.isr) >= enough else elr)
            self.history.append(self.state)
        if self.writes_lost:
            done.set_exception(ConnectionError("the answer was lost"))
            return
        done.set_result(self.state)
        self.publish()

    # --- waiting ----------------------------------------------------------------------------------------------------

    async def until(self, what: Callable[[], bool], why: str, limit_s: float = 60.0) -> None:
        """Until `what` holds, in virtual time."""
        deadline = self.clock.monotonic() + limit_s
        while not what():
            for node in self.nodes.values():
                if node.alive:
                    node.check()
            assert self.clock.monotonic() < deadline, f"not within {limit_s:g} s: {why}"
            await self.clock.sleep(0.01)

    async def alike(self) -> None:
        """Until all live replicas have the same log, all of it committed and known to be."""
        live = [node for node in self.nodes.values() if node.alive]
        leader = self.nodes[self.state.leader].partition
        await self.until(
            lambda: all(
                (n.partition.log.end_offset, n.partition.high_watermark) == (leader.log.end_offset,) * 2 for n in live
            ),
            "the replicas have the same log, all committed",
        )
        assert len({tuple(node.batches()) for node in live}) == 1


def play(
    story: Callable[[Trio], Coroutine[Any, Any, None]], seed: int = 1, lag_s: float = 10.0, **settings: object
) -> None:
    """Run a story on a fresh trio; settings are the topic's, with _ for dots."""

    async def whole() -> None:
        trio = Trio({name.replace("_", "."): str(value) for name, value in settings.items()}, lag_s)
        await trio.start()
        try:
            await story(trio)
        finally:
            await trio.close()

    sim_loop.run(whole(), seed)
