"""One broker: the only place that knows every room. It builds them, plugs them into each other, and runs them.

Start: take the address, take the data folder, read the metadata, open the logs, lead the partitions, let clients in.
Stop: the same backwards. With `clean=False` it just lets go, as a crash would.

A broker stands alone, with its metadata in its own data folder, or it belongs to a cluster, and is given a way to open
sessions with the cluster's store. In a cluster it leaves before anything else is stopped, so that others lead by then;
and it lets nobody in before it is registered, for until then it could only say that it knows no partition.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from headrace.api.gate import Gate
from headrace.api.producer_ids import ProducerIds
from headrace.api.reply_budget import ReplyBudgets
from headrace.api.table import Rooms, build_table
from headrace.api.view_fetch import Views
from headrace.cluster.controller import Controller
from headrace.cluster.embedded import EmbeddedStore
from headrace.cluster.isr_writes import IsrWrites
from headrace.cluster.leader_balance import BalanceTerms
from headrace.cluster.lease import Lease
from headrace.cluster.membership import BrokerIdentity, found_cluster, new_token, register_broker
from headrace.cluster.sessions import OpenStore, Sessions
from headrace.cluster.store import ConnectionLost, SessionLost, Store
from headrace.cluster.topic_changes import TopicDefaults
from headrace.cluster.view import ClusterView
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.settings import group_settings
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.settings import transaction_settings
from headrace.log import identity
from headrace.log.folder import DataFolder
from headrace.log.logs import Logs, Upkeep
from headrace.log.producer_state import ProducerLimits
from headrace.log.strays import Strays, is_stray
from headrace.model.broker_config import BrokerConfig
from headrace.model.failure import Failure
from headrace.model.image import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ClusterImage
from headrace.model.settings import INT_MAX
from headrace.model.settings_in_force import BrokerFile
from headrace.model.share_state import ShareStates
from headrace.model.topic_config import TopicConfig, topic_config
from headrace.replicas.host import ReplicaHost
from headrace.replicas.journal import TopicJournal
from headrace.replicas.scrub import Scrub
from headrace.replicas.watermarks import Watermarks
from headrace.server.descriptors import divide
from headrace.server.dispatch import Dispatcher
from headrace.server.forwarding import Forwarding, forwarding_name
from headrace.server.idle_views import IdleViews
from headrace.server.internal_topics import InternalTopics
from headrace.server.listener import listener_of
from headrace.server.log_ends import PeersLogEnds
from headrace.server.long_work import LongWork
from headrace.server.loop_lag import LoopLag
from headrace.server.marker_delivery import MarkerDelivery
from headrace.server.neighbours import Neighbours
from headrace.server.partition_ends import PartitionEnds
from headrace.server.peers import Peers
from headrace.server.remote_transactions import CoordinatorDesk, MarkerPost
from headrace.server.requests_seen import RequestsSeen
from headrace.server.shares import Shares
from headrace.server.standing import Standing
from headrace.server.vigil import Vigil
from headrace.wire.api_keys import ApiKey
from headrace.world.world import World

logger = logging.getLogger(__name__)

Address = tuple[str, int]
METADATA = "metadata.db"  # where a broker that stands alone keeps it


class Broker:
    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        data: Path,
        listen: Address,
        *,
        advertise: Address | None = None,
        metrics: Address | None = None,
        open_store: OpenStore | None = None,
        watchful: bool = False,
        open_files: int = INT_MAX,
    ) -> None:
        """`open_store` opens a session with the store of the cluster; without it the broker stands alone. Only on an
        event loop that runs on real time may it be `watchful` (vigil.py). `open_files`: that it may have open at once,
        connections included."""
        self._world = world
        self._config = config
        self._data = data
        self._listen = listen
        self._advertise = advertise
        self._metrics_at = metrics
        self._open_store = open_store
        self._watchful = watchful
        self._descriptors = divide(open_files)
        self.metrics_port: int | None = None
        self._close_metrics: Callable[[], None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._store: Store
        self._epoch = -1  # of a broker that stands alone
        self._standing: Standing | None = None  # in a cluster
        self._all_peers: list[Peers] = []
        self.reply_budgets = ReplyBudgets(config.reply_budget_bytes)

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when clients can connect. Raises Failure for what a person can mend."""
        world, config = self._world, self._config
        self._neighbours = Neighbours(world.net, world.clock, self.image, config.broker_id)
        places, vigil = self._descriptors.connections, self._vigil()
        crowded = self.reply_budgets.crowded
        self._listener = listener_of(
            world.net, world.clock, config, places, brokers=self._neighbours, crowded=crowded, vigil=vigil
        )
        await self._listener.bind(*self._listen)
        self._folder = DataFolder(world.disk, self._data)
        await world.disk.off_loop(self._folder.open)
        if self._open_store is None:
            await self._start_alone()
        else:
            await self._start_in_cluster(self._open_store)
        if self._metrics_at is not None:
            self._open_metrics(*self._metrics_at)

    def _vigil(self) -> Vigil | None:
        watch_s = self._config.busy_poll_us / 1_000_000
        if not self._watchful or not watch_s:
            return None
        return Vigil(watch_s, self._world.clock.monotonic, asyncio.get_running_loop().call_soon, os.sched_yield)

    async def _start_alone(self) -> None:
        if self._folder.claimed and not self._world.disk.exists(self._data / METADATA):
            raise Failure(
                f"the metadata of {self._data} is not in it: start this broker in its cluster, with --zookeeper"
            )
        store = EmbeddedStore(self._world.disk, self._data / METADATA)
        self._store = store
        await store.open()
        await self._claim_folder()
        self._build_controller()
        self._epoch = await register_broker(
            store,
            self._identity(),
            self._world.clock,
            token=new_token(self._world.entropy),
            kept_epoch=self._folder.clean_epoch,
        )
        await self._controller.take_office()
        await self._open_logs()
        self._build_rooms()
        await self._begin()
        await self._listener.open(self._dispatcher)

    async def _start_in_cluster(self, open_store: OpenStore) -> None:
        timeout_s = self._config.zookeeper_session_timeout_ms / 1000
        self._store = sessions = Sessions(open_store)
        self._identity()  # a person's mistake is told before anything is waited for
        self._build_controller()
        self._lease = Lease(sessions, self._world.clock, timeout_s)
        self._standing = Standing(
            sessions, self._view, self._world.clock, self._world.entropy, timeout_s, self._controller.run
        )
        while not self._view.image.cluster_id:
            await sessions.begin()
            with suppress(SessionLost, ConnectionLost):  # it was too short: another one
                await self._claim_folder()
                await self._standing.follow()
        await self._world.disk.off_loop(self._set_strays_aside)
        await self._open_logs()
        self._build_rooms()
        self._standing.on_lost(self._host.resign_all)
        self._host.join_cluster(
            self._world.net,
            IsrWrites(sessions, self._view, _file(self._config)),
            self._lease.holds,
            wait_ms=self._config.replica_fetch_wait_max_ms,
            partition_bytes=self._config.replica_fetch_max_bytes,
        )
        self._standing.on_registered(self._host.registered)
        await self._standing.register(self._identity(), self._folder.clean_epoch)
        await self._begin()
        await self._listener.open(self._dispatcher)

    async def _begin(self) -> None:
        self._running = asyncio.ensure_future(self._run())
        self._view.subscribe(self._on_image)
        self._listener.on_left = self._shares.sessions.left
        self._host.follow(ClusterImage("", -1), self._view.image)
        hosted = asyncio.ensure_future(self._host.followed())
        await asyncio.wait({self._running, hosted}, return_when=asyncio.FIRST_COMPLETED)
        hosted.cancel()

    async def stop(self, *, clean: bool = True) -> None:
        if clean and self._standing is not None:
            await self._standing.leave()
        self._listener.close()
        if self._close_metrics is not None:
            self._close_metrics()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        for peers in self._all_peers:
            peers.close()
        if clean:
            await self._world.disk.off_loop(self._host.save_watermarks)
            await self._logs.close(self.epoch)
        else:
            self._logs.abandon()
        await self._store.close()
        self._folder.close()

    async def failed(self) -> None:
        """Returns never, unless a part of the broker dies: then its error is raised."""
        assert self._running is not None
        try:
            await asyncio.shield(self._running)
        except BaseExceptionGroup as errors:
            raise _first_cause(errors) from None

    @property
    def address(self) -> Address:
        return self._listener.address

    @property
    def epoch(self) -> int:
        """The broker epoch under which this process registered last; -1 before that."""
        return self._epoch if self._standing is None else self._standing.epoch

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            rooms = (self._logs, self._host, self._groups, self._transactions, self._shares)
            parts = (self._controller, *rooms, self._listener, self._lag, self._scrub, self._idle_views)
            for part in (
                parts
                if self._standing is None
                else (self._standing, self._lease, self._strays, self._neighbours, *parts[1:])
            ):
                group.create_task(part.run())

    # --- building ---------------------------------------------------------------------------------------------------

    async def _claim_folder(self) -> None:
        """Found the cluster, or find it, and see that the data folder is this broker's in it."""
        cluster_id = await found_cluster(self._store, self._world.entropy)
        disk_id = self._world.entropy.uuid().hex
        await self._world.disk.off_loop(self._folder.claim, cluster_id, self._config.broker_id, disk_id)

    def _build_controller(self) -> None:
        world, config = self._world, self._config
        self._view = ClusterView()
        defaults = TopicDefaults(config.num_partitions, config.default_replication_factor, _file(config))
        self._controller = Controller(
            self._store,
            self._view,
            config.broker_id,
            defaults,
            world.entropy,
            world.clock,
            log_ends=PeersLogEnds(self._peers("log-ends")),
            balance=_balance_terms(config),
            session_timeout_s=None if self._open_store is None else config.zookeeper_session_timeout_ms / 1000,
        )

    def _identity(self) -> BrokerIdentity:
        """Where others reach this broker."""
        host, port = self._advertise or self._listener.address
        if self._open_store is not None and host in ("0.0.0.0", "::"):
            raise Failure(f"a broker of a cluster that listens on {host} must say how others reach it: use --advertise")
        return BrokerIdentity(self._config.broker_id, host, port, self._config.rack, self._folder.disk_id)

    def _set_strays_aside(self) -> None:
        """Once the view shows everything that is stored of the cluster."""
        world, config = self._world, self._config
        self._strays = Strays(world.disk, world.clock, self._data, config.stray_delete_delay_ms / 1000)
        self._strays.set_aside(partial(is_stray, self._view.image, config.broker_id))

    async def _open_logs(self) -> None:
        image, in_force = self._view.image, _file(self._config).in_force(self._view.image)
        wanted: dict[str, tuple[uuid.UUID, TopicConfig]] = {}
        for topic in image.topics.values():
            config = topic_config(topic.settings, in_force)
            for partition in topic.partitions:
                if self._config.broker_id in partition.replicas:
                    wanted[identity.folder_name(topic.name, partition.index)] = topic.id, config

        def config_of(folder: str) -> TopicConfig | None:
            topic_id, config = wanted.get(folder, (identity.UNKNOWN, None))
            # A topic may have been deleted, and another of its name made, while this broker was away.
            try:
                told = identity.load(self._world.disk, self._data / folder)
            except (OSError, Failure):
                return config  # opening it says why, and takes this partition only
            return config if told in (topic_id, identity.UNKNOWN) else None

        upkeep = _upkeep(self._config, self._descriptors.log_files)
        self._logs = Logs(self._world.disk, self._world.clock, self._data, upkeep)
        await self._logs.open(config_of)
        self._watermarks = Watermarks(self._world.disk, self._data)
        await self._world.disk.off_loop(self._watermarks.load)

    def _build_rooms(self) -> None:
        world, config = self._world, self._config
        disk, clock = world.disk, world.clock
        self._host = ReplicaHost(
            config.broker_id,
            self._logs,
            clock,
            config.settings,
            lag_s=config.replica_lag_time_max_ms / 1000,
            watermarks=self._watermarks,
            compute=world.computing.off_loop,
        )
        journal = TopicJournal(self._host, clock, disk.off_loop)
        forwarding = Forwarding(self._controller, self._view, self._peers(self._forwarding_name), clock)
        ensure_internal_topic = InternalTopics(forwarding, self.image, config).ensure
        self._shares = Shares(journal, world, self, config, self._peers("share-states"), ensure_internal_topic)
        states = self._share_states()
        self._groups = GroupCoordinator(journal, clock, world.entropy, self, group_settings(config), states)
        markers = self._marker_delivery()
        producer_ids, terms = ProducerIds(self._controller.allocate_producer_ids), transaction_settings(config)
        self._transactions = TransactionCoordinator(journal, clock, self, terms, markers, producer_ids.next)
        self._host.on_leadership(self._on_leadership)
        desk = CoordinatorDesk(self._transactions, self.image, config.broker_id, self._peers("transactions"))
        self._scrub = Scrub(self._host, clock, config.scrub_bytes_per_s)
        self._lag, self._seen = LoopLag(clock), RequestsSeen()
        self._rooms = rooms = Rooms(
            config=config,
            world=world,
            data=self._data,
            host=self._host,
            gate=Gate(),
            view=self._view,
            controller=self._controller,
            groups=self._groups,
            transactions=self._transactions,
            markers=markers,
            producer_ids=producer_ids,
            advertise=self._advertise,
            ensure_internal_topic=ensure_internal_topic,
            shares=self._shares,
            topic_maker=forwarding,
            coordinator_desk=desk,
            reply_budgets=self.reply_budgets,
            views=Views(world.scans, clock),
            log_ends=PartitionEnds(self._host, self.image, config.broker_id, self._peers("partition-ends")),
            share_states=states,
        )
        self._table = forwarding.over(build_table(rooms))
        self._idle_views = self._watch_idle_views(rooms.views)
        long_work = LongWork(world.computing, self._listener.unfinished, self.reply_budgets.consumers)
        self._dispatcher = Dispatcher(self._table, self._seen, clock, long_work)

    def _marker_delivery(self) -> MarkerDelivery:
        post = MarkerPost(self.image, self._config.broker_id, self._peers("markers"))
        return MarkerDelivery(self._host, self._groups, self._world.clock, post)

    def _watch_idle_views(self, views: Views) -> IdleViews:
        alter, idle_ms = self._table[ApiKey.INCREMENTAL_ALTER_CONFIGS].handler, self._config.view_idle_ms
        rooms = self._view, views, self._groups, self._controller
        return IdleViews(*rooms, alter, self._world.clock, idle_ms)

    def _share_states(self) -> ShareStates:
        """The way to the share coordinators."""
        return self._shares.states

    def _forwarding_name(self) -> str:
        return forwarding_name(self._view.image, self._config.broker_id)

    def _peers(self, purpose: str | Callable[[], str]) -> Peers:
        peers = Peers(self._world.net, self._world.clock, purpose)
        self._all_peers.append(peers)
        return peers

    # --- plugs between rooms ----------------------------------------------------------------------------------------

    def image(self) -> ClusterImage:
        return self._view.image

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self._host.follow(old, new)
        for name in old.topics.keys() - new.topics.keys():
            self._groups.on_topic_deleted(name)
        self._shares.on_image(old, new)

    def _on_leadership(self, topic: str, partition: int, leads: bool, epoch: int) -> None:
        if topic == GROUP_OFFSETS_TOPIC:
            self._groups.on_leadership(partition, leads, epoch)
        elif topic == TRANSACTION_STATE_TOPIC:
            self._transactions.on_leadership(partition, leads, epoch)
        self._shares.on_leadership(topic, partition, leads, epoch)

    def _open_metrics(self, host: str, port: int) -> None:
        from headrace.server.measured import Measured  # loaded only where metrics are wanted: a tenth
        from headrace.server.metrics import MetricsServer  # of the start would go into it

        names = {key: api.name for key, api in self._table.items()}
        measured = Measured(self._rooms, self._listener, self._shares, self._scrub, self._seen, self._lag, names)
        server = MetricsServer(measured.metrics)
        self.metrics_port = server.open(host, port)
        self._close_metrics = server.close


def _first_cause(error: BaseException) -> BaseException:
    """What parts of a broker die of comes in groups; a person is told one thing, at best what he can mend."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    causes = [_first_cause(inner) for inner in error.exceptions]
    return next((cause for cause in causes if isinstance(cause, Failure)), causes[0])


def _file(config: BrokerConfig) -> BrokerFile:
    return BrokerFile(config.broker_id, config.settings)


def _balance_terms(config: BrokerConfig) -> BalanceTerms:
    return BalanceTerms(
        config.auto_leader_rebalance_enable,
        config.leader_imbalance_check_interval_seconds,
        config.leader_imbalance_per_broker_percentage,
    )


def _upkeep(config: BrokerConfig, open_files: int) -> Upkeep:
    return Upkeep(
        flush_ms=config.flush_interval_ms,
        retention_check_ms=config.log_retention_check_interval_ms,
        producers=ProducerLimits(config.producer_id_expiration_ms, config.partition_producer_ids_max),
        reserve_bytes=config.disk_reserve_bytes,
        open_files=open_files,
    )
