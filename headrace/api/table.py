"""Every API that is served, with its versions and its handler: dispatch, the ApiVersions reply and the docs read this.

Each entry says which operations a request may need; the gate (api/gate.py) answers who may do them.
`build_table` is the only place where handlers meet the rooms they ask; each gets the two or three it needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from headrace.api.add_offsets_to_txn import AddOffsetsToTxn
from headrace.api.add_partitions_to_txn import AddPartitionsToTxn
from headrace.api.alter_configs import AlterConfigs
from headrace.api.alter_partition_reassignments import AlterPartitionReassignments
from headrace.api.alter_replica_log_dirs import AlterReplicaLogDirs
from headrace.api.alter_share_group_offsets import AlterShareGroupOffsets
from headrace.api.api_versions import ApiVersions
from headrace.api.consumer_group_describe import ConsumerGroupDescribe
from headrace.api.consumer_group_heartbeat import ConsumerGroupHeartbeat
from headrace.api.contract import Express, Handler, Peer
from headrace.api.create_partitions import CreatePartitions
from headrace.api.create_topics import CreateTopics
from headrace.api.delete_groups import DeleteGroups
from headrace.api.delete_records import DeleteRecords
from headrace.api.delete_share_group_offsets import DeleteShareGroupOffsets
from headrace.api.delete_topics import DeleteTopics
from headrace.api.describe_cluster import DescribeCluster
from headrace.api.describe_configs import DescribeConfigs
from headrace.api.describe_groups import DescribeGroups
from headrace.api.describe_log_dirs import DescribeLogDirs
from headrace.api.describe_producers import DescribeProducers
from headrace.api.describe_share_group_offsets import DescribeShareGroupOffsets
from headrace.api.describe_topic_partitions import DescribeTopicPartitions
from headrace.api.describe_transactions import DescribeTransactions
from headrace.api.elect_leaders import ElectLeaders
from headrace.api.end_txn import EndTxn
from headrace.api.express_fetch import ExpressFetch
from headrace.api.express_produce import ExpressProduce
from headrace.api.fetch import Fetch
from headrace.api.fetch_reading import FetchReading
from headrace.api.fetch_sessions import FetchSessions
from headrace.api.find_coordinator import FindCoordinator
from headrace.api.gate import Gate, Guard
from headrace.api.heartbeat import Heartbeat
from headrace.api.incremental_alter_configs import IncrementalAlterConfigs
from headrace.api.init_producer_id import InitProducerId
from headrace.api.join_group import JoinGroup
from headrace.api.known_brokers import KnownBrokers
from headrace.api.leader_hints import LeaderHints
from headrace.api.leave_group import LeaveGroup
from headrace.api.limits import AT_ONCE_ITEMS, FEWER_ITEMS, MOST_BYTES, MOST_ITEMS
from headrace.api.list_config_resources import ListConfigResources
from headrace.api.list_groups import ListGroups
from headrace.api.list_offsets import ListOffsets
from headrace.api.list_partition_reassignments import ListPartitionReassignments
from headrace.api.list_transactions import ListTransactions
from headrace.api.long_appends import LongAppends
from headrace.api.metadata import Metadata, TopicMaker
from headrace.api.offset_commit import OffsetCommit
from headrace.api.offset_delete import OffsetDelete
from headrace.api.offset_fetch import OffsetFetch
from headrace.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from headrace.api.operations import NONE, Need, Needs, Operation, Resource
from headrace.api.pieces import PIECE
from headrace.api.produce import Produce
from headrace.api.producer_ids import ProducerIds
from headrace.api.reply_budget import ReplyBudgets
from headrace.api.share_acknowledge import ShareAcknowledge
from headrace.api.share_acknowledging import Acknowledging
from headrace.api.share_fetch import ShareFetch
from headrace.api.share_group_describe import ShareGroupDescribe
from headrace.api.share_group_heartbeat import ShareGroupHeartbeat
from headrace.api.share_group_offsets import LogEnds, ShareGroupOffsets
from headrace.api.share_group_states import ShareGroupStates, delete, initialize, read, summarize, write
from headrace.api.share_reading import ShareReading
from headrace.api.share_sessions import ShareSessions
from headrace.api.sync_group import SyncGroup
from headrace.api.transaction_entry import TransactionCoordinators, TransactionEntry
from headrace.api.transactional_produce import TransactionalProduce
from headrace.api.txn_offset_commit import TxnOffsetCommit
from headrace.api.update_features import UpdateFeatures
from headrace.api.view_fetch import Views
from headrace.api.write_txn_markers import MarkerDesk, WriteTxnMarkers
from headrace.cluster.controller import Controller
from headrace.cluster.view import ClusterView
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.shares.coordinator import ShareCoordinator
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.model.broker_config import BrokerConfig
from headrace.model.image import GROUP_OFFSETS_TOPIC, BrokerImage, ClusterImage
from headrace.model.settings import INT_MAX
from headrace.model.share_state import ShareStates
from headrace.replicas.host import ReplicaHost
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import Message
from headrace.world.world import World

# Levels in force. transaction.version 2 needs Produce 12, AddPartitionsToTxn 5 and EndTxn 5.
FEATURES = {"group.version": 1, "share.version": 1, "transaction.version": 2}

# The operations of Kafka's protocol authorization table.
_ALTER_CLUSTER = (Need(Operation.ALTER, Resource.CLUSTER),)
_ALTER_CONFIGS_CLUSTER = (Need(Operation.ALTER_CONFIGS, Resource.CLUSTER),)
_CLUSTER_ACTION = (Need(Operation.CLUSTER_ACTION, Resource.CLUSTER),)
_DESCRIBE_CLUSTER = (Need(Operation.DESCRIBE, Resource.CLUSTER),)
_DESCRIBE_CONFIGS_CLUSTER = (Need(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),)
_IDEMPOTENT_WRITE_CLUSTER = (Need(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER),)
_DELETE_GROUP = (Need(Operation.DELETE, Resource.GROUP),)
_DESCRIBE_GROUP = (Need(Operation.DESCRIBE, Resource.GROUP),)
_READ_GROUP = (Need(Operation.READ, Resource.GROUP),)
_ALTER_TOPIC = (Need(Operation.ALTER, Resource.TOPIC),)
_ALTER_CONFIGS_TOPIC = (Need(Operation.ALTER_CONFIGS, Resource.TOPIC),)
_CREATE_TOPIC = (Need(Operation.CREATE, Resource.TOPIC),)
_DELETE_TOPIC = (Need(Operation.DELETE, Resource.TOPIC),)
_DESCRIBE_TOPIC = (Need(Operation.DESCRIBE, Resource.TOPIC),)
_DESCRIBE_CONFIGS_TOPIC = (Need(Operation.DESCRIBE_CONFIGS, Resource.TOPIC),)
_READ_TOPIC = (Need(Operation.READ, Resource.TOPIC),)
_WRITE_TOPIC = (Need(Operation.WRITE, Resource.TOPIC),)
_DESCRIBE_TXN_ID = (Need(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID),)
_WRITE_TXN_ID = (Need(Operation.WRITE, Resource.TRANSACTIONAL_ID),)


class Api(Struct, frozen=True):
    key: ApiKey
    lowest: int
    highest: int
    needs: Needs  # every operation that a request may need; no default, so that no API is registered without
    handler: Handler
    advertised_from: int | None = None  # where ApiVersions says something else than what is served
    unknown_version: Callable[[], Message] | None = None  # the answer to a version that is not served; else: close
    express: Express | None = None  # a shorter way for the usual request, where it pays
    asks_by_name: bool = False  # it asks the gate for each resource that a request names, on both paths
    most_bytes: int = MOST_BYTES  # of a request
    most_items: int = MOST_ITEMS  # of all arrays of a request
    at_once_items: int = AT_ONCE_ITEMS  # more are decoded outside the event loop
    guard: Guard | None = None  # what the dispatcher asks before either path, where the API does not ask by name

    @property
    def name(self) -> str:
        return self.key.title

    @property
    def advertised_lowest(self) -> int:
        return self.lowest if self.advertised_from is None else self.advertised_from


class ShareRooms(Protocol):
    """What is here of share groups."""

    @property
    def coordinator(self) -> ShareCoordinator: ...

    @property
    def sessions(self) -> ShareSessions: ...


class Rooms(Struct, frozen=True):
    """What handlers can ask; known to this file and to the broker that builds it."""

    config: BrokerConfig
    world: World
    data: Path
    host: ReplicaHost
    gate: Gate
    view: ClusterView
    controller: Controller
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: MarkerDesk
    producer_ids: ProducerIds
    advertise: tuple[str, int] | None
    ensure_internal_topic: Callable[[str], Awaitable[None]]
    topic_maker: TopicMaker
    coordinator_desk: TransactionCoordinators
    reply_budgets: ReplyBudgets
    views: Views
    log_ends: LogEnds
    shares: ShareRooms
    share_states: ShareStates

    def image(self) -> ClusterImage:
        return self.view.image

    def address_of(self, peer: Peer, broker: BrokerImage) -> tuple[str, int]:
        """Where a client should connect: this broker at the address it already reached, unless told otherwise."""
        if broker.id == self.config.broker_id:
            return self.advertise or (peer.local_host, peer.local_port)
        return broker.host, broker.port


def build_table(rooms: Rooms) -> Mapping[int, Api]:
    """The APIs by key."""
    disk, clock = rooms.world.disk, rooms.world.clock
    host, controller, groups, config = rooms.host, rooms.controller, rooms.groups, rooms.config
    transactions, entry = rooms.transactions, TransactionEntry(rooms.coordinator_desk)

    def space() -> tuple[int, int]:
        return disk.total_bytes(rooms.data), disk.free_bytes(rooms.data)

    def ensure_offsets_topic() -> Awaitable[None]:
        return rooms.ensure_internal_topic(GROUP_OFFSETS_TOPIC)

    hints = LeaderHints(rooms.image, rooms.address_of)
    brokers = KnownBrokers(rooms.view, rooms.address_of, config.broker_id)
    metadata = Metadata(rooms.view, rooms.topic_maker, brokers, config.auto_create_topics)
    find_coordinator = FindCoordinator(rooms, rooms.address_of, rooms.ensure_internal_topic, clock)
    create_topics = CreateTopics(controller, rooms.view, clock, config.broker_id, config.settings)
    delete_topics = DeleteTopics(controller, rooms.view, clock, enabled=config.delete_topic_enable)
    init_producer_id = InitProducerId(rooms.producer_ids, transactions)
    add_offsets = AddOffsetsToTxn(transactions, rooms, ensure_offsets_topic)
    offsets_in_transaction = TxnOffsetCommit(groups, rooms, host, entry)
    alter_some_configs = IncrementalAlterConfigs(controller)
    describe_configs = DescribeConfigs(rooms.view, config.broker_id, config.settings, rooms.address_of, rooms.data)
    apis = [
        _produce(rooms, hints, entry),
        _fetch(rooms, hints),
        Api(ApiKey.LIST_OFFSETS, 1, 11, _DESCRIBE_TOPIC, ListOffsets(host, disk.off_loop)),
        Api(ApiKey.METADATA, 0, 13, _DESCRIBE_TOPIC + _CREATE_TOPIC, metadata),
        Api(ApiKey.OFFSET_COMMIT, 2, 10, _READ_GROUP + _READ_TOPIC, OffsetCommit(groups, rooms)),
        Api(ApiKey.OFFSET_FETCH, 1, 10, _DESCRIBE_GROUP + _DESCRIBE_TOPIC, OffsetFetch(groups, rooms)),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, _DESCRIBE_GROUP + _DESCRIBE_TXN_ID, find_coordinator),
        Api(ApiKey.JOIN_GROUP, 0, 9, _READ_GROUP, JoinGroup(groups)),
        Api(ApiKey.HEARTBEAT, 0, 4, _READ_GROUP, Heartbeat(groups)),
        Api(ApiKey.LEAVE_GROUP, 0, 5, _READ_GROUP, LeaveGroup(groups)),
        Api(ApiKey.SYNC_GROUP, 0, 5, _READ_GROUP, SyncGroup(groups)),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 6, _DESCRIBE_GROUP, DescribeGroups(groups)),
        Api(ApiKey.LIST_GROUPS, 0, 5, _DESCRIBE_GROUP, ListGroups(groups)),
        Api(ApiKey.CREATE_TOPICS, 2, 7, _CREATE_TOPIC, create_topics),
        Api(ApiKey.DELETE_TOPICS, 1, 6, _DELETE_TOPIC, delete_topics),
        Api(ApiKey.DELETE_RECORDS, 0, 2, _DELETE_TOPIC, DeleteRecords(host, clock)),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 5, _WRITE_TXN_ID + _IDEMPOTENT_WRITE_CLUSTER, init_producer_id),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, _DESCRIBE_TOPIC, OffsetForLeaderEpoch(host)),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, _WRITE_TXN_ID + _WRITE_TOPIC, AddPartitionsToTxn(transactions, rooms)),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, _WRITE_TXN_ID + _READ_GROUP, add_offsets),
        Api(ApiKey.END_TXN, 0, 5, _WRITE_TXN_ID, EndTxn(transactions)),
        Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, _CLUSTER_ACTION, WriteTxnMarkers(rooms.markers)),
        Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, _WRITE_TXN_ID + _READ_GROUP + _READ_TOPIC, offsets_in_transaction),
        Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, _DESCRIBE_CONFIGS_TOPIC + _DESCRIBE_CONFIGS_CLUSTER, describe_configs),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, _ALTER_CONFIGS_TOPIC + _ALTER_CONFIGS_CLUSTER, AlterConfigs(controller)),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, _ALTER_CLUSTER, AlterReplicaLogDirs(host, rooms.data)),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, _DESCRIBE_CLUSTER, DescribeLogDirs(host, rooms.data, space)),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, _ALTER_TOPIC, CreatePartitions(controller, clock)),
        Api(ApiKey.DELETE_GROUPS, 0, 2, _DELETE_GROUP, DeleteGroups(groups)),
        Api(ApiKey.ELECT_LEADERS, 0, 2, _ALTER_CLUSTER, ElectLeaders(controller, rooms.view, clock)),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, _ALTER_CONFIGS_TOPIC + _ALTER_CONFIGS_CLUSTER, alter_some_configs),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, _ALTER_CLUSTER, AlterPartitionReassignments(controller, clock)),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, _DESCRIBE_CLUSTER, ListPartitionReassignments(rooms.view)),
        Api(ApiKey.OFFSET_DELETE, 0, 0, _DELETE_GROUP + _READ_TOPIC, OffsetDelete(groups, rooms)),
        Api(ApiKey.UPDATE_FEATURES, 0, 2, _ALTER_CLUSTER, UpdateFeatures(FEATURES)),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, _DESCRIBE_CLUSTER, DescribeCluster(rooms.view, brokers)),
        *_consumer_group_apis(rooms),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, _READ_TOPIC, DescribeProducers(host)),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, _DESCRIBE_TXN_ID + _DESCRIBE_TOPIC, DescribeTransactions(transactions)),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 2, _DESCRIBE_TXN_ID, ListTransactions(transactions, clock)),
        Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, _DESCRIBE_CONFIGS_CLUSTER, ListConfigResources(rooms.view)),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, _DESCRIBE_TOPIC, DescribeTopicPartitions(rooms.view)),
        *_share_apis(rooms, hints),
    ]
    served = [(api.key, api.advertised_lowest, api.highest) for api in apis]
    versions = ApiVersions(sorted([*served, (ApiKey.API_VERSIONS, 0, 4)]), FEATURES)
    apis.append(Api(ApiKey.API_VERSIONS, 0, 4, NONE, versions, unknown_version=versions.refuse_version))
    return {int(api.key): _limited(_guarded(api, rooms.gate)) for api in apis}


def _consumer_group_apis(rooms: Rooms) -> list[Api]:
    heartbeat, describe = ConsumerGroupHeartbeat(rooms.groups), ConsumerGroupDescribe(rooms.groups, rooms)
    return [
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, _READ_GROUP + _DESCRIBE_TOPIC, heartbeat),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, _DESCRIBE_GROUP + _DESCRIBE_TOPIC, describe),
    ]


def _share_apis(rooms: Rooms, hints: LeaderHints) -> list[Api]:
    return [*_share_group_apis(rooms), *_share_record_apis(rooms, hints), *_share_state_apis(rooms)]


def _share_group_apis(rooms: Rooms) -> list[Api]:
    groups, offsets = rooms.groups, ShareGroupOffsets(rooms.groups, rooms, rooms.share_states, rooms.log_ends)
    describe_offsets = DescribeShareGroupOffsets(offsets, rooms)
    alter_offsets, delete_offsets = AlterShareGroupOffsets(offsets, rooms), DeleteShareGroupOffsets(offsets, rooms)
    return [
        Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, _READ_GROUP + _DESCRIBE_TOPIC, ShareGroupHeartbeat(groups)),
        Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, _DESCRIBE_GROUP + _DESCRIBE_TOPIC, ShareGroupDescribe(groups, rooms)),
        Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, _DESCRIBE_GROUP + _DESCRIBE_TOPIC, describe_offsets),
        Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, _READ_GROUP + _READ_TOPIC, alter_offsets),
        Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, _DELETE_GROUP + _READ_TOPIC, delete_offsets),
    ]


def _produce(rooms: Rooms, hints: LeaderHints, entry: TransactionEntry) -> Api:
    world, transactions = rooms.world, TransactionalProduce(entry)
    return Api(
        ApiKey.PRODUCE,
        3,
        13,
        _WRITE_TOPIC + _WRITE_TXN_ID,
        Produce(rooms.host, rooms.gate, hints, world.clock, transactions, LongAppends(world.computing)),
        advertised_from=0,
        express=ExpressProduce(rooms.host, rooms.gate),
        asks_by_name=True,
        most_bytes=INT_MAX,  # socket.request.max.bytes is the limit
        at_once_items=PIECE,  # a write takes longer than an entry of a list
    )


def _fetch(rooms: Rooms, hints: LeaderHints) -> Api:
    world, config = rooms.world, rooms.config
    sessions = FetchSessions(
        world.clock, world.entropy, config.fetch_session_slots, config.fetch_session_max_partitions
    )
    max_bytes, off_loop = config.fetch_max_bytes, world.disk.off_loop
    reading = FetchReading(rooms.host, off_loop, max_bytes, hints, rooms.reply_budgets.consumers)
    replicas_reading = FetchReading(rooms.host, off_loop, max_bytes, hints, rooms.reply_budgets.replicas)
    return Api(
        ApiKey.FETCH,
        4,
        18,
        _READ_TOPIC + _CLUSTER_ACTION,
        Fetch(rooms.host, rooms.gate, sessions, world.clock, world.entropy, reading, replicas_reading, rooms.views),
        express=ExpressFetch(rooms.host, rooms.gate, world.clock, max_bytes, rooms.reply_budgets.consumers),
        asks_by_name=True,
    )


def _share_state_apis(rooms: Rooms) -> list[Api]:
    here = rooms.shares.coordinator
    return [
        Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, _CLUSTER_ACTION, ShareGroupStates(here, initialize)),
        Api(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, _CLUSTER_ACTION, ShareGroupStates(here, read)),
        Api(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, _CLUSTER_ACTION, ShareGroupStates(here, write)),
        Api(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, _CLUSTER_ACTION, ShareGroupStates(here, delete)),
        Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, _CLUSTER_ACTION, ShareGroupStates(here, summarize)),
    ]


def _share_record_apis(rooms: Rooms, hints: LeaderHints) -> list[Api]:
    world, host, sessions, budget = rooms.world, rooms.host, rooms.shares.sessions, rooms.reply_budgets.consumers
    acknowledging = Acknowledging(host, sessions, hints)
    max_bytes = rooms.config.fetch_max_bytes
    reading = ShareReading(host, sessions.live, world.disk.off_loop, world.clock, max_bytes, budget)
    fetch, acknowledge = ShareFetch(acknowledging, reading, world.clock), ShareAcknowledge(acknowledging)
    needs = _READ_GROUP + _READ_TOPIC
    return [
        Api(ApiKey.SHARE_FETCH, 1, 2, needs, fetch),
        Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, needs, acknowledge),
    ]


def _guarded(api: Api, gate: Gate) -> Api:
    return api if api.asks_by_name else replace(api, guard=gate.guard(api.needs))


def _limited(api: Api) -> Api:
    return replace(api, most_items=FEWER_ITEMS.get(api.key, api.most_items))
