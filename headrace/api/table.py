"""Every API that is served, with its versions and its handler: dispatch, the ApiVersions reply and the docs read this.

`build_table` is the only place where handlers meet the rooms they ask; each gets the two or three it needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Struct

from headrace.api.add_offsets_to_txn import AddOffsetsToTxn
from headrace.api.add_partitions_to_txn import AddPartitionsToTxn
from headrace.api.alter_configs import AlterConfigs
from headrace.api.alter_partition_reassignments import AlterPartitionReassignments
from headrace.api.alter_replica_log_dirs import AlterReplicaLogDirs
from headrace.api.api_versions import ApiVersions
from headrace.api.consumer_group_describe import ConsumerGroupDescribe
from headrace.api.consumer_group_heartbeat import ConsumerGroupHeartbeat
from headrace.api.contract import Express, Handler, Peer
from headrace.api.create_partitions import CreatePartitions
from headrace.api.create_topics import CreateTopics
from headrace.api.delete_groups import DeleteGroups
from headrace.api.delete_records import DeleteRecords
from headrace.api.delete_topics import DeleteTopics
from headrace.api.describe_cluster import DescribeCluster
from headrace.api.describe_configs import DescribeConfigs
from headrace.api.describe_groups import DescribeGroups
from headrace.api.describe_log_dirs import DescribeLogDirs
from headrace.api.describe_producers import DescribeProducers
from headrace.api.describe_topic_partitions import DescribeTopicPartitions
from headrace.api.describe_transactions import DescribeTransactions
from headrace.api.elect_leaders import ElectLeaders
from headrace.api.end_txn import EndTxn
from headrace.api.express_fetch import ExpressFetch
from headrace.api.express_produce import ExpressProduce
from headrace.api.fetch import Fetch
from headrace.api.fetch_sessions import FetchSessions
from headrace.api.find_coordinator import FindCoordinator
from headrace.api.heartbeat import Heartbeat
from headrace.api.incremental_alter_configs import IncrementalAlterConfigs
from headrace.api.init_producer_id import InitProducerId
from headrace.api.join_group import JoinGroup
from headrace.api.known_brokers import KnownBrokers
from headrace.api.leader_hints import LeaderHints
from headrace.api.leave_group import LeaveGroup
from headrace.api.list_config_resources import ListConfigResources
from headrace.api.list_groups import ListGroups
from headrace.api.list_offsets import ListOffsets
from headrace.api.list_partition_reassignments import ListPartitionReassignments
from headrace.api.list_transactions import ListTransactions
from headrace.api.metadata import Metadata, TopicMaker
from headrace.api.offset_commit import OffsetCommit
from headrace.api.offset_delete import OffsetDelete
from headrace.api.offset_fetch import OffsetFetch
from headrace.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from headrace.api.produce import Produce
from headrace.api.producer_ids import ProducerIds
from headrace.api.sync_group import SyncGroup
from headrace.api.transaction_entry import TransactionCoordinators, TransactionEntry
from headrace.api.transactional_produce import TransactionalProduce
from headrace.api.txn_offset_commit import TxnOffsetCommit
from headrace.api.update_features import UpdateFeatures
from headrace.api.write_txn_markers import MarkerDesk, WriteTxnMarkers
from headrace.cluster.controller import Controller
from headrace.cluster.view import ClusterView
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.model.broker_config import BrokerConfig
from headrace.model.image import GROUP_OFFSETS_TOPIC, BrokerImage, ClusterImage
from headrace.replicas.host import ReplicaHost
from headrace.wire.messages import Message
from headrace.world.world import World

API_VERSIONS = 18
# Levels in force. transaction.version 2 needs Produce 12, AddPartitionsToTxn 5 and EndTxn 5.
FEATURES = {"group.version": 1, "transaction.version": 2}


class Api(Struct, frozen=True):
    key: int
    name: str
    lowest: int
    highest: int
    handler: Handler
    advertised_from: int | None = None  # where ApiVersions says something else than what is served
    unknown_version: Callable[[], Message] | None = None  # the answer to a version that is not served; else: close
    express: Express | None = None  # a shorter way for the usual request, where it pays

    @property
    def advertised_lowest(self) -> int:
        return self.lowest if self.advertised_from is None else self.advertised_from


class Rooms(Struct, frozen=True):
    """What handlers can ask; known to this file and to the broker that builds it."""

    config: BrokerConfig
    world: World
    data: Path
    host: ReplicaHost
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

    def image(self) -> ClusterImage:
        return self.view.image

    def address_of(self, peer: Peer, broker: BrokerImage) -> tuple[str, int]:
        """Where a client should connect: this broker at the address it already reached, unless told otherwise."""
        if broker.id == self.config.broker_id:
            return self.advertise or (peer.local_host, peer.local_port)
        return broker.host, broker.port


def build_table(rooms: Rooms) -> Mapping[int, Api]:
    """The APIs by key."""
    disk, clock, entropy = rooms.world.disk, rooms.world.clock, rooms.world.entropy
    host, controller, groups, config = rooms.host, rooms.controller, rooms.groups, rooms.config
    transactions, entry = rooms.transactions, TransactionEntry(rooms.coordinator_desk)
    sessions = FetchSessions(clock, entropy, config.fetch_session_slots)

    def space() -> tuple[int, int]:
        return disk.total_bytes(rooms.data), disk.free_bytes(rooms.data)

    def ensure_offsets_topic() -> Awaitable[None]:
        return rooms.ensure_internal_topic(GROUP_OFFSETS_TOPIC)

    hints = LeaderHints(rooms.image, rooms.address_of)
    brokers = KnownBrokers(rooms.view, rooms.address_of, config.broker_id)
    produce = Produce(host, hints, clock, TransactionalProduce(entry))
    fetch = Fetch(host, sessions, clock, entropy, disk.off_loop, config.fetch_max_bytes, hints)
    describe_configs = DescribeConfigs(rooms.view, config.broker_id, config.settings, rooms.address_of, rooms.data)
    apis = [
        Api(0, "Produce", 3, 13, produce, advertised_from=0, express=ExpressProduce(host)),
        Api(1, "Fetch", 4, 18, fetch, express=ExpressFetch(host, clock, config.fetch_max_bytes)),
        Api(2, "ListOffsets", 1, 11, ListOffsets(host, disk.off_loop)),
        Api(3, "Metadata", 0, 13, Metadata(rooms.view, rooms.topic_maker, brokers, config.auto_create_topics)),
        Api(8, "OffsetCommit", 2, 10, OffsetCommit(groups, rooms)),
        Api(9, "OffsetFetch", 1, 10, OffsetFetch(groups, rooms)),
        Api(
            10,
            "FindCoordinator",
            0,
            6,
            FindCoordinator(rooms, rooms.address_of, rooms.ensure_internal_topic, rooms.world.clock),
        ),
        Api(11, "JoinGroup", 0, 9, JoinGroup(groups)),
        Api(12, "Heartbeat", 0, 4, Heartbeat(groups)),
        Api(13, "LeaveGroup", 0, 5, LeaveGroup(groups)),
        Api(14, "SyncGroup", 0, 5, SyncGroup(groups)),
        Api(15, "DescribeGroups", 0, 6, DescribeGroups(groups)),
        Api(16, "ListGroups", 0, 5, ListGroups(groups)),
        Api(19, "CreateTopics", 2, 7, CreateTopics(controller, rooms.view, clock, config.broker_id, config.settings)),
        Api(20, "DeleteTopics", 1, 6, DeleteTopics(controller, rooms.view, clock, enabled=config.delete_topic_enable)),
        Api(21, "DeleteRecords", 0, 2, DeleteRecords(host, clock)),
        Api(22, "InitProducerId", 0, 5, InitProducerId(rooms.producer_ids, transactions)),
        Api(23, "OffsetForLeaderEpoch", 2, 4, OffsetForLeaderEpoch(host)),
        Api(24, "AddPartitionsToTxn", 0, 5, AddPartitionsToTxn(transactions, rooms)),
        Api(25, "AddOffsetsToTxn", 0, 4, AddOffsetsToTxn(transactions, rooms, ensure_offsets_topic)),
        Api(26, "EndTxn", 0, 5, EndTxn(transactions)),
        Api(27, "WriteTxnMarkers", 1, 2, WriteTxnMarkers(rooms.markers)),
        Api(28, "TxnOffsetCommit", 0, 5, TxnOffsetCommit(groups, rooms, host, entry)),
        Api(32, "DescribeConfigs", 1, 4, describe_configs),
        Api(33, "AlterConfigs", 0, 2, AlterConfigs(controller)),
        Api(34, "AlterReplicaLogDirs", 1, 2, AlterReplicaLogDirs(host, rooms.data)),
        Api(35, "DescribeLogDirs", 1, 5, DescribeLogDirs(host, rooms.data, space)),
        Api(37, "CreatePartitions", 0, 3, CreatePartitions(controller, clock)),
        Api(42, "DeleteGroups", 0, 2, DeleteGroups(groups)),
        Api(43, "ElectLeaders", 0, 2, ElectLeaders(controller, rooms.view, clock)),
        Api(44, "IncrementalAlterConfigs", 0, 1, IncrementalAlterConfigs(controller)),
        Api(45, "AlterPartitionReassignments", 0, 1, AlterPartitionReassignments(controller, clock)),
        Api(46, "ListPartitionReassignments", 0, 0, ListPartitionReassignments(rooms.view)),
        Api(47, "OffsetDelete", 0, 0, OffsetDelete(groups, rooms)),
        Api(57, "UpdateFeatures", 0, 2, UpdateFeatures(FEATURES)),
        Api(60, "DescribeCluster", 0, 2, DescribeCluster(rooms.view, brokers)),
        Api(68, "ConsumerGroupHeartbeat", 0, 1, ConsumerGroupHeartbeat(groups)),
        Api(69, "ConsumerGroupDescribe", 0, 1, ConsumerGroupDescribe(groups, rooms)),
        Api(61, "DescribeProducers", 0, 0, DescribeProducers(host)),
        Api(65, "DescribeTransactions", 0, 0, DescribeTransactions(transactions)),
        Api(66, "ListTransactions", 0, 2, ListTransactions(transactions, clock)),
        Api(74, "ListConfigResources", 0, 1, ListConfigResources(rooms.view)),
        Api(75, "DescribeTopicPartitions", 0, 0, DescribeTopicPartitions(rooms.view)),
    ]
    served = [(api.key, api.advertised_lowest, api.highest) for api in apis]
    versions = ApiVersions(sorted([*served, (API_VERSIONS, 0, 4)]), FEATURES)
    table = {api.key: api for api in apis}
    table[API_VERSIONS] = Api(API_VERSIONS, "ApiVersions", 0, 4, versions, unknown_version=versions.refuse_version)
    return table
