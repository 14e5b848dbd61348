"""Leaders store ISR changes: one compare-and-set on the partition's node, with a check of the broker epoch of each new
member.

The replicas room declares the interface that it needs (`IsrStore`), and `server/broker.py` passes this in. A leader
decides who is in sync; which other replicas are eligible follows from that and is added here (`election.with_isr`).

Invariants: the result is a stored state, and it is in the view before it is returned. If the response to a write is
lost, the node is read again: either the write is found, or it is repeated, or another writer was faster. So a leader is
never left with a version that is not stored. A broker that was restarted since its fetch cannot join: the multi checks
its epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from headrace.cluster import election, znodes
from headrace.cluster.store import BadVersion, Check, ConnectionLost, NoNode, Operation, Set, Store, StoreError
from headrace.cluster.view import ClusterView
from headrace.model.image import PartitionImage, TopicImage
from headrace.model.settings_in_force import BrokerFile
from headrace.wire.errors import ErrorCode, KafkaError

_BY_ITS_LEADER = -1  # in place of the epoch of the controller that wrote a state


class IsrWrites:
    def __init__(self, store: Store, view: ClusterView, file: BrokerFile) -> None:
        self._store = store
        self._view = view
        self._file = file

    def change(
        self, topic: str, partition: PartitionImage, joins: Sequence[tuple[int, int]]
    ) -> asyncio.Future[PartitionImage]:
        """Store this ISR; `partition.version` is that of the state it was decided on, `joins` are new (broker, epoch).

        The result is the stored state, whoever wrote it; its version shows that. KafkaError(NOT_LEADER_OR_FOLLOWER) if
        the stored state has another leader or epoch.
        """
        return asyncio.ensure_future(self._change(topic, partition, joins))

    async def _change(self, name: str, partition: PartitionImage, joins: Sequence[tuple[int, int]]) -> PartitionImage:
        image = self._view.image
        topic, before = image.topics.get(name), image.partition(name, partition.index)
        if topic is None or before is None:
            raise _not_leader(f"topic {name!r} was deleted")
        if before.version != partition.version:
            return _same_leadership(partition, before)
        terms = election.terms_of(topic, image, self._file)
        wanted = election.with_isr(before, election.entries(partition), terms)
        try:
            stored = await self._write(topic, replace(wanted, version=before.version + 1), joins)
        except NoNode:
            raise _not_leader(f"topic {name!r} was deleted") from None
        except StoreError as error:
            raise _not_leader(f"this broker has lost touch with its cluster: {error}") from error
        self._view.merge_soon(topic.id, stored)
        return _same_leadership(partition, stored)

    async def _write(
        self, topic: TopicImage, wanted: PartitionImage, joins: Sequence[tuple[int, int]]
    ) -> PartitionImage:
        path = znodes.partition_path(topic.id, wanted.index)
        data = znodes.encode_partition(znodes.state_of(wanted, _BY_ITS_LEADER))
        operations: list[Operation] = [Set(path, data, wanted.version - 1)]
        operations += [Check(znodes.broker_epoch_path(broker), epoch) for broker, epoch in joins]
        while True:
            try:
                await self._store.multi(operations)
            except BadVersion:
                return await self._read(path, wanted.index)
            except ConnectionLost:
                stored = await self._read(path, wanted.index)
                if stored.version != wanted.version - 1:
                    return stored  # ours, if it equals what was wanted
            else:
                return wanted

    async def _read(self, path: str, index: int) -> PartitionImage:
        await self._store.sync()
        data, stat = await self._store.get(path)
        return znodes.image_of(index, znodes.decode_partition(path, data), stat.version)


def _same_leadership(asked: PartitionImage, stored: PartitionImage) -> PartitionImage:
    if (stored.leader, stored.leader_epoch) != (asked.leader, asked.leader_epoch):
        raise _not_leader(f"partition {asked.index} is led by broker {stored.leader} in epoch {stored.leader_epoch}")
    return stored


def _not_leader(why: str) -> KafkaError:
    return KafkaError(ErrorCode.not_leader_or_follower, why)
