"""How a fetch of a share group reads and acquires, and how it waits while there is nothing. Used by share_fetch.

A look goes over the partitions once, and finds out where there are records to hand out. These are loaded, within the
budget of replies (reply_budget.py), and acquired in the turn of the event loop in which they are there: nothing is
acquired that is not in the reply. Records that several members look at go to the first.

A fetch that finds nothing is entered with the partitions' waiting readers, as every fetch, and with the share
partitions, which wake it for what comes back. It is woken at the end of the leadership, too.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

from msgspec import Struct

from headrace.api.contract import Caller
from headrace.api.pieces import PIECE
from headrace.api.reply_budget import FREE_BYTES, SMALL_BYTES, Grant, ReplyBudget, granted
from headrace.api.share_sessions import Place
from headrace.log.reading import Slice
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.replicas.share.acquisition import Acquired, portions
from headrace.replicas.share.live_partition import LivePartition
from headrace.replicas.share.live_partitions import LivePartitions
from headrace.replicas.share.reading import shared_batches
from headrace.replicas.waiters import Audience, Wait
from headrace.wire.batches import Buffer
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock

STRICT = 1  # the acquire mode in which max_records is never exceeded
_LEAST_READ_BYTES = 16 << 10
_LARGEST_READ_BYTES = 8 << 20
_AGAIN_S = 0.02
_WIDE_WAIT_S = 1.0
_LOOKS_AT_ONCE = 20  # that find only what nobody is to be given

OffLoop = Callable[[Callable[[], Buffer]], Awaitable[Buffer]]


class Wanted(Struct, frozen=True):
    """What one request asks for."""

    group: str
    member: str
    places: list[Place]
    max_records: int
    batch_size: int
    min_bytes: int
    max_bytes: int
    max_wait_s: float
    strict: bool


class Yield(Struct):
    """What one partition gives: records of which some are acquired, or an error."""

    topic_id: uuid.UUID
    index: int
    records: Buffer = b""
    acquired: list[Acquired] = []
    error: KafkaError | None = None


class _Find(Struct):
    """Records that may be handed out, not loaded yet."""

    live: LivePartition
    offset: int
    slice: Slice

    @property
    def is_passed(self) -> bool:
        return self.live.deliveries is None or self.live.deliveries.next_offset != self.offset


class _Look:
    """One pass over the partitions."""

    def __init__(self) -> None:
        self.finds: list[_Find] = []
        self.errors: list[Yield] = []
        self.lives: list[LivePartition] = []
        self.size = 0
        self.is_enough = False
        """Waiting would not bring more: there is more than what was found."""


class ShareReading:
    def __init__(
        self,
        host: ReplicaHost,
        live: LivePartitions,
        off_loop: OffLoop,
        clock: Clock,
        max_bytes: int,
        budget: ReplyBudget,
    ) -> None:
        self._host = host
        self._live = live
        self._off_loop = off_loop
        self._clock = clock
        self._max_bytes = max_bytes
        self._budget = budget

    async def fetch(self, wanted: Wanted, caller: Caller, *, at_once: bool) -> list[Yield]:
        """`at_once`: do not wait for records."""
        give_up_at = self._clock.monotonic() + (0.0 if at_once else wanted.max_wait_s)
        looks = 0
        while wanted.places:
            look = await self._look(wanted)
            late = self._clock.monotonic() >= give_up_at
            if look.finds and (late or look.errors or look.is_enough or look.size >= wanted.min_bytes):
                yields = await self._acquire_all(wanted, look, caller)
                if yields or look.errors:
                    return yields + look.errors
                looks += 1
                if not late or looks < _LOOKS_AT_ONCE:
                    # What was found is nobody's to have, so look behind it; or somebody else was faster.
                    await (
                        asyncio.sleep(0) if any(find.is_passed for find in look.finds) else self._clock.sleep(_AGAIN_S)
                    )
                    continue
            if look.errors or late:
                return look.errors
            await self._wait(look, wanted, give_up_at - self._clock.monotonic())
        return []

    async def _wait(self, look: _Look, wanted: Wanted, wait_s: float) -> None:
        stable = self._live.terms_of(wanted.group).read_committed
        partitions = [live.partition for live in look.lives]
        missing = max(1, wanted.min_bytes - look.size)
        if len(wanted.places) > PIECE:  # it was looked at in pieces, so something may have been missed
            wait_s = min(wait_s, _WIDE_WAIT_S)
        wait = Wait(partitions, Audience.STABLE if stable else Audience.COMMITTED, missing, wait_s, self._clock)
        for live in look.lives:
            live.waiters[wait.due] = None
        try:
            await wait.due
        finally:
            wait.due.cancel()  # does nothing once it is done
            for live in look.lives:
                live.waiters.pop(wait.due, None)

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _look(self, wanted: Wanted) -> _Look:
        look, left = _Look(), min(wanted.max_bytes, self._max_bytes)
        share = max(1, left // len(wanted.places))
        for at, (topic_id, index) in enumerate(wanted.places):
            if at and at % PIECE == 0:
                await asyncio.sleep(0)
            try:
                partition = self._host.find_by_id(topic_id, index)
                partition.check_leader(-1)
                live = self._live.open(wanted.group, partition)
                look.lives.append(live)
                self._look_at(look, wanted, partition, live, min(share, left - look.size))
            except KafkaError as error:
                look.errors.append(Yield(topic_id, index, error=error))
        return look

    def _look_at(self, look: _Look, wanted: Wanted, partition: Partition, live: LivePartition, max_bytes: int) -> None:
        if live.deliveries is None or live.is_loading:
            return
        live.keep_up()
        if max_bytes <= 0 or not live.has_room(wanted.member):
            return
        stable, offset = live.terms.read_committed, live.deliveries.next_offset
        end = partition.last_stable_offset if stable else partition.high_watermark
        if offset >= end:
            return
        room = min(max_bytes, _LARGEST_READ_BYTES)
        if live.record_bytes:  # more would be read in vain
            room = min(room, _LEAST_READ_BYTES + int(1.5 * live.record_bytes * wanted.max_records))
        found = partition.read(offset, room, at_least_one=not look.finds, stable=stable)
        if found.size:
            look.finds.append(_Find(live, offset, found))
            look.size += found.size
            look.is_enough = look.is_enough or found.more or offset < live.deliveries.window.end

    # --- acquiring --------------------------------------------------------------------------------------------------

    async def _acquire_all(self, wanted: Wanted, look: _Look, caller: Caller) -> list[Yield]:
        grant = None
        if look.size > FREE_BYTES:
            grant = self._budget.take(look.size, caller)
            if grant is None:
                return await self._acquire_later(wanted, caller)
        return await self._load_and_acquire(wanted, look, grant)

    async def _acquire_later(self, wanted: Wanted, caller: Caller) -> list[Yield]:
        """With little, when it is this connection's turn."""
        grant = await self._budget.wait(SMALL_BYTES, caller)
        look = await self._look(_of_bytes(wanted, grant.size))
        return await self._load_and_acquire(wanted, look, grant)

    async def _load_and_acquire(self, wanted: Wanted, look: _Look, grant: Grant | None) -> list[Yield]:
        yields, left = list[Yield](), wanted.max_records
        for find in look.finds:
            if left <= 0:
                break
            data = find.slice.load_cached()
            if data is None:
                data = await self._load(find)
            if not data or find.live.closed is not None:
                continue
            found = self._acquire(wanted, find, data, left, grant)
            if found is not None:
                left -= sum(one.last - one.first + 1 for one in found.acquired)
                yields.append(found)
        return yields

    async def _load(self, find: _Find) -> Buffer:
        """From the disk; meanwhile the others of the group leave this partition alone."""
        live = find.live
        live.is_loading = True
        try:
            return await self._off_loop(find.slice.load)
        finally:
            live.is_loading = False
            live.wake()

    def _acquire(self, wanted: Wanted, find: _Find, data: Buffer, most: int, grant: Grant | None) -> Yield | None:
        live = find.live
        partition = live.partition
        if not partition.leads or partition.leader_epoch != live.leader_epoch:
            return Yield(
                live.key.topic_id, partition.index, error=KafkaError(ErrorCode.not_leader_or_follower, str(partition))
            )
        batches = shared_batches(data, find.offset, partition.log, read_committed=live.terms.read_committed)
        live.record_bytes = batches.record_bytes
        acquired = live.acquire(wanted.member, batches.spans, most, strict=wanted.strict)
        if not acquired:
            return None
        records = batches.bytes_of(acquired)
        partition.bytes_out += len(records)
        return Yield(
            live.key.topic_id,
            partition.index,
            records if grant is None else granted(records, grant),
            portions(acquired, wanted.batch_size),
        )


def _of_bytes(wanted: Wanted, max_bytes: int) -> Wanted:
    return Wanted(
        wanted.group,
        wanted.member,
        wanted.places,
        wanted.max_records,
        wanted.batch_size,
        wanted.min_bytes,
        min(wanted.max_bytes, max_bytes),
        wanted.max_wait_s,
        wanted.strict,
    )
