"""A group coordinator on virtual time, asked through its handlers and real bytes in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from headrace.api.alter_share_group_offsets import AlterShareGroupOffsets
from headrace.api.consumer_group_describe import ConsumerGroupDescribe
from headrace.api.consumer_group_heartbeat import ConsumerGroupHeartbeat
from headrace.api.contract import Handler
from headrace.api.delete_groups import DeleteGroups
from headrace.api.delete_share_group_offsets import DeleteShareGroupOffsets
from headrace.api.describe_groups import DescribeGroups
from headrace.api.describe_share_group_offsets import DescribeShareGroupOffsets
from headrace.api.heartbeat import Heartbeat
from headrace.api.join_group import JoinGroup
from headrace.api.leave_group import LeaveGroup
from headrace.api.list_groups import ListGroups
from headrace.api.offset_commit import OffsetCommit
from headrace.api.offset_delete import OffsetDelete
from headrace.api.offset_fetch import OffsetFetch
from headrace.api.share_group_describe import ShareGroupDescribe
from headrace.api.share_group_heartbeat import ShareGroupHeartbeat
from headrace.api.share_group_offsets import ShareGroupOffsets
from headrace.api.sync_group import SyncGroup
from headrace.api.txn_offset_commit import TxnOffsetCommit
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.settings import GroupSettings
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.world.entropy import SeededEntropy
from sim.loop import SimClock, run
from tests.share_states import MemoryStates
from tests.unit.api.admin_room import ask
from tests.unit.coordinators.stage import Cluster, MemoryJournal, subscription

OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE, TXN_OFFSET_COMMIT = 8, 9, 47, 28
JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 11, 12, 13, 14, 15, 16, 42
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69
SHARE_HEARTBEAT, SHARE_DESCRIBE = 76, 77
SHARE_OFFSETS, ALTER_SHARE_OFFSETS, DELETE_SHARE_OFFSETS = 90, 91, 92
END = 100  # of every partition


class _AnyPartition:
    """Every partition is here."""

    def find(self, topic: str, index: int) -> SimpleNamespace:
        return SimpleNamespace(topic=topic, index=index, ends=0)


class _OpenDoor:
    """Every partition is in every transaction."""

    def enter(self, claim: object, partitions: object, admission: object) -> None:
        return None


class _Ends:
    """Every log has the same end, but those of a lost leader."""

    lost: tuple[str, ...] = ()

    async def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | ErrorCode]:
        return {place: ErrorCode.leader_not_available if place.topic in self.lost else END for place in partitions}


class GroupRoom:
    def __init__(
        self, coordinator: GroupCoordinator, cluster: Cluster, journal: MemoryJournal, states: MemoryStates
    ) -> None:
        self.states = states
        self.ends = _Ends()
        share_offsets = ShareGroupOffsets(coordinator, cluster, states, self.ends)
        self.coordinator = coordinator
        self.cluster = cluster
        self.journal = journal
        self._handlers: dict[int, Handler] = {
            OFFSET_COMMIT: OffsetCommit(coordinator, cluster),
            OFFSET_FETCH: OffsetFetch(coordinator, cluster),
            OFFSET_DELETE: OffsetDelete(coordinator, cluster),
            TXN_OFFSET_COMMIT: TxnOffsetCommit(coordinator, cluster, _AnyPartition(), _OpenDoor()),  # type: ignore[arg-type]
            JOIN: JoinGroup(coordinator),
            HEARTBEAT: Heartbeat(coordinator),
            LEAVE: LeaveGroup(coordinator),
            SYNC: SyncGroup(coordinator),
            DESCRIBE: DescribeGroups(coordinator),
            LIST: ListGroups(coordinator),
            DELETE: DeleteGroups(coordinator),
            CONSUMER_HEARTBEAT: ConsumerGroupHeartbeat(coordinator),
            CONSUMER_DESCRIBE: ConsumerGroupDescribe(coordinator, cluster),
            SHARE_HEARTBEAT: ShareGroupHeartbeat(coordinator),
            SHARE_DESCRIBE: ShareGroupDescribe(coordinator, cluster),
            SHARE_OFFSETS: DescribeShareGroupOffsets(share_offsets, cluster),
            ALTER_SHARE_OFFSETS: AlterShareGroupOffsets(share_offsets, cluster),
            DELETE_SHARE_OFFSETS: DeleteShareGroupOffsets(share_offsets, cluster),
        }

    async def ask(self, api_key: int, version: int, **body: Any) -> Message:
        return await ask(self._handlers[api_key], api_key, version, **body)

    async def join(self, version: int, group: str = "g", member_id: str = "", **more: Any) -> Message:
        """As a consumer of topic `t`; an answer that asks for a member id is followed up."""
        body = {
            "group_id": group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [Message(name="range", metadata=subscription("t"))],
            **more,
        }
        joined = await self.ask(JOIN, version, member_id=member_id, **body)
        if joined.error_code == 79:  # MEMBER_ID_REQUIRED
            joined = await self.ask(JOIN, version, member_id=joined.member_id, **body)
        return joined

    async def member(self, version: int = 9, group: str = "g", **more: Any) -> Message:
        """The only member of a stable group, with the part `part`."""
        joined = await self.join(version, group, **more)
        await self.ask(
            SYNC,
            3,
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=more.get("group_instance_id"),
            assignments=[Message(member_id=joined.member_id, assignment=b"part")],
        )
        return joined

    async def commit(self, offset: int, group: str = "g", topic: str = "t", partition: int = 0) -> int:
        """Without being a member; the error code."""
        part = Message(partition_index=partition, committed_offset=offset, committed_metadata="note")
        committed = await self.ask(OFFSET_COMMIT, 8, group_id=group, topics=[Message(name=topic, partitions=[part])])
        return int(committed.topics[0].partitions[0].error_code)

    async def share(self, member_id: str = "m", epoch: int = 0, group: str = "s", **more: Any) -> Message:
        """The heartbeat of a member of a share group."""
        body = {"subscribed_topic_names": ["t"] if epoch == 0 else None, **more}
        return await self.ask(SHARE_HEARTBEAT, 1, group_id=group, member_id=member_id, member_epoch=epoch, **body)

    def start_loading(self) -> None:
        """The coordinator reads its journal for as long as the story lasts."""
        self.journal.block_reads()
        self.coordinator.on_leadership(0, True, 2)


def in_group_room(story: Callable[[GroupRoom], Awaitable[None]]) -> None:
    async def main() -> None:
        journal, cluster, states = MemoryJournal(), Cluster({"t": {}, "u": {}}), MemoryStates()
        settings = GroupSettings(initial_rebalance_delay_ms=0)
        coordinator = GroupCoordinator(journal, SimClock(), SeededEntropy(1), cluster, settings, states)
        running = asyncio.ensure_future(coordinator.run())
        coordinator.on_leadership(0, True, 1)
        await asyncio.sleep(0.001)
        await story(GroupRoom(coordinator, cluster, journal, states))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main(), seed=1)
