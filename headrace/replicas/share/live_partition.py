"""One share partition at its leader: its deliveries, the way of acknowledgements to the stored state, and its timer.

It begins by reading the stored state, and tries until it succeeds; a start offset that was not chosen yet is chosen
and stored before the first record is handed out. Acknowledgements are staged at once, in the order of their requests.
One write is under way at a time, and what is staged meanwhile goes with the next one; a reply leaves when its write is
stored. If a write fails, the state is read again, and what was staged is forgotten.

There is one for each leader epoch: it is closed, and whoever waits is woken, when this broker ceases to lead, or when
the coordinator says that somebody else writes this state now. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from headrace.model.share_state import NO_START, SharePartition, ShareState, ShareStates
from headrace.replicas.partition import Partition
from headrace.replicas.share.acquisition import Acquired, Span
from headrace.replicas.share.deliveries import Acknowledgement, Deliveries, Staged
from headrace.replicas.share.terms import ShareTerms, TermsOf
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock, Timer

logger = logging.getLogger(__name__)

OffLoop = Callable[..., Awaitable[Any]]

_RETRY_S, _LONGEST_RETRY_S = 0.05, 1.0
_PATIENCE_S = 10.0  # of a write
_ACTIVE_S = 10.0  # a member that has fetched within this time gets its share of the locks
_RETRIED = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.request_timed_out,
)
_FENCED = (ErrorCode.fenced_leader_epoch, ErrorCode.fenced_state_epoch)


class _Waiting(Struct, frozen=True):
    """Staged acknowledgements, and the reply that waits for them."""

    staged: Staged
    stored: asyncio.Future[None]


class LivePartition:
    def __init__(
        self,
        key: SharePartition,
        partition: Partition,
        states: ShareStates,
        terms_of: TermsOf,
        clock: Clock,
        off_loop: OffLoop,
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.deliveries: Deliveries | None = None
        """None until the stored state has been read."""
        self.closed: KafkaError | None = None
        self.waiters: dict[asyncio.Future[None], None] = {}
        """Fetches that found nothing here; they are woken when that may have changed, other than by new records."""
        self.crowded = False
        """Somebody waits for locks that others hold."""
        self.is_loading = False
        """Somebody reads records from the disk for this group."""
        self.record_bytes = 0.0
        """How large a record is, about; 0: not known."""
        self._state_epoch = 0
        self._states = states
        self._terms_of = terms_of
        self._clock = clock
        self._off_loop = off_loop
        self._waiting: list[_Waiting] = []
        self._seen: dict[str, float] = {}  # when members have fetched last
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self.is_left = False
        """Its group has no session here any more."""
        self._work: asyncio.Task[None] | None = asyncio.ensure_future(self._initialize())
        self._work.add_done_callback(self._check_work)

    def __str__(self) -> str:
        return f"{self.partition} of share group {self.key.group}"

    @property
    def terms(self) -> ShareTerms:
        return self._terms_of(self.key.group)

    @property
    def is_idle(self) -> bool:
        """Nothing is in flight, and nobody waits."""
        deliveries = self.deliveries
        return not self.waiters and (deliveries is None or (self._work is None and not deliveries.held))

    # --- beginning and end ------------------------------------------------------------------------------------------

    async def _initialize(self) -> None:
        pause_s, told = _RETRY_S, False
        while self.closed is None:
            try:
                state = await self._read()
                if self.closed is None:
                    self._begin(state)
                return
            except (KafkaError, OSError) as error:
                if isinstance(error, KafkaError) and error.code in _FENCED:
                    self.close(KafkaError(ErrorCode.not_leader_or_follower, f"{self} has another leader: {error}"))
                    return
                if not told and not (isinstance(error, KafkaError) and error.code in _RETRIED):
                    logger.warning("cannot read the state of %s (%s); trying again", self, error)
                    told = True
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    async def _read(self) -> ShareState:
        state = await self._states.read(self.key, self.leader_epoch)
        if state.start_offset == NO_START:
            start = await self._choose_start()
            state = ShareState(state.state_epoch, self.leader_epoch, start, 0)
            await self._states.write(self.key, state)  # or else another leader would choose another one
        return state

    async def _choose_start(self) -> int:
        terms, partition = self.terms, self.partition
        end = partition.last_stable_offset if terms.read_committed else partition.high_watermark
        if terms.from_start:
            return partition.log.start_offset
        if terms.from_age_ms is None:
            return end
        since = self._clock.now_ms() - terms.from_age_ms
        found: tuple[int, int] | None = await self._off_loop(partition.log.find_time, since, end)
        return end if found is None else found[0]

    def _begin(self, state: ShareState) -> None:
        self._work = None
        self._state_epoch = state.state_epoch
        self.deliveries = Deliveries(state)
        self.keep_up()
        self.wake()

    def close(self, why: KafkaError) -> None:
        """It is over: whoever waits finds out why, or asks the new leader."""
        if self.closed is not None:
            return
        self.closed = why
        if self._timer is not None:
            self._timer.cancel()
        if self._work is not None:
            self._work.cancel()
            self._work = None
        waiting, self._waiting = self._waiting, []
        _fail(waiting, why)
        self.wake()

    # --- handing out ------------------------------------------------------------------------------------------------

    def keep_up(self) -> None:
        """With the start of the log, which retention moves."""
        deliveries = self.deliveries
        if deliveries is not None and deliveries.trim(self.partition.log.start_offset):
            self._store_soon()

    def acquire(self, member: str, spans: Sequence[Span], most: int, *, strict: bool) -> list[Acquired]:
        deliveries, limits, now = self.deliveries, self.terms.limits, self._clock.monotonic()
        assert deliveries is not None
        acquired = deliveries.acquire(
            member, spans, now, limits, most, share=self._share(member, limits.max_locks, now), strict=strict
        )
        self._arm()
        self._store_soon()
        return acquired

    def has_room(self, member: str) -> bool:
        """Whether this member may be given anything; if not, it is woken when that changes."""
        deliveries, limits, now = self.deliveries, self.terms.limits, self._clock.monotonic()
        assert deliveries is not None
        share = self._share(member, limits.max_locks, now)
        if deliveries.is_full(limits) or deliveries.held_by(member) >= share:
            self.crowded = True
            return False
        return True

    def _share(self, member: str, max_locks: int, now: float) -> int:
        """How many locks it may hold, so that nobody starves who works on the same partition."""
        seen = self._seen
        seen[member] = now
        if len(seen) > 1:
            for other in [other for other, last in seen.items() if last < now - _ACTIVE_S]:
                del seen[other]
        return max(1, max_locks // len(seen))

    def wake(self) -> None:
        self.crowded = False
        for waiter in list(self.waiters):
            if not waiter.done():
                waiter.set_result(None)

    # --- acknowledgements -------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement]) -> asyncio.Future[None] | None:
        """Stages them, or raises KafkaError. Done when they are stored; None if nothing has to be."""
        deliveries = self.deliveries
        if self.closed is not None or deliveries is None:
            raise KafkaError(ErrorCode.invalid_record_state, f"nothing of {self} is handed out here")
        self.keep_up()
        staged = deliveries.stage(member, acknowledgements, self._clock.monotonic(), self.terms.limits)
        self._arm()
        if not staged.runs:
            return None
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(staged, stored))
        self._store_soon()
        return stored

    def leave(self, member: str) -> None:
        """The member's session has ended: what it holds, others may have."""
        self._seen.pop(member, None)
        if self.deliveries is not None and self.closed is None:
            if self.deliveries.leave(member, self.terms.limits) or self.crowded:
                self.wake()
            self._store_soon()

    # --- storing ----------------------------------------------------------------------------------------------------

    def _store_soon(self) -> None:
        """In the next turn of the event loop, so that what this turn brings goes together."""
        deliveries = self.deliveries
        if self._work is not None or self.closed is not None or deliveries is None:
            return
        if self._waiting or deliveries.wants_storing:
            self._work = asyncio.ensure_future(self._store_all(deliveries))
            self._work.add_done_callback(self._check_work)

    def _check_work(self, work: asyncio.Task[None]) -> None:
        """A fault must not leave anybody waiting."""
        error = None if work.cancelled() else work.exception()
        if error is not None:
            logger.error("the state of %s cannot be kept", self, exc_info=error)
            self._work = None
            self.close(KafkaError(ErrorCode.unknown_server_error, f"{self} has failed"))

    async def _store_all(self, deliveries: Deliveries) -> None:
        while self._waiting or deliveries.wants_storing:
            taken, self._waiting = self._waiting, []
            start, done, batches = deliveries.to_store([waiting.staged for waiting in taken])
            state = ShareState(self._state_epoch, self.leader_epoch, start, done, tuple(batches))
            try:
                await self._write(state)
            except asyncio.CancelledError:
                _fail(taken, self.closed or KafkaError(ErrorCode.not_leader_or_follower, "this broker is stopping"))
                raise
            except (KafkaError, OSError) as error:
                deliveries.store_again(batches)
                await self._forget(deliveries, taken, error)
                continue
            deliveries.stored_start = start
            for waiting in taken:
                deliveries.settle(waiting.staged)
                if not waiting.stored.done():
                    waiting.stored.set_result(None)
            if self.crowded or deliveries.next_offset < deliveries.window.end:
                self.wake()
        self._work = None

    async def _write(self, state: ShareState) -> None:
        """To write the same once more does no harm: nobody else writes this state, and nothing is written meanwhile."""
        pause_s, give_up_at = _RETRY_S, self._clock.monotonic() + _PATIENCE_S
        while True:
            try:
                await self._states.write(self.key, state)
                return
            except KafkaError as error:
                if error.code not in _RETRIED or self._clock.monotonic() + pause_s > give_up_at:
                    raise
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    async def _forget(self, deliveries: Deliveries, taken: list[_Waiting], error: KafkaError | OSError) -> None:
        """The write has failed, or its answer was lost: the stored state says what is true."""
        logger.warning("the state of %s was not written (%s); reading it back", self, error)
        try:
            state = await self._states.read(self.key, self.leader_epoch)
            if state.state_epoch != self._state_epoch:
                raise KafkaError(ErrorCode.fenced_state_epoch, f"{self} was reset")
        except (KafkaError, OSError) as unread:
            why = told_by_leader(unread)
            _fail(taken, why)
            self._work = None
            self.close(why)
            raise asyncio.CancelledError from None
        except asyncio.CancelledError:
            _fail(taken, self.closed or told_by_leader(error))
            raise
        deliveries.forget([waiting.staged for waiting in taken], state)
        _fail(taken, told_by_leader(error))
        self.wake()

    # --- locks that run out -----------------------------------------------------------------------------------------

    def _arm(self) -> None:
        due = None if self.deliveries is None else self.deliveries.next_deadline
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_later(max(0.0, due - self._clock.monotonic()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        deliveries = self.deliveries
        if deliveries is None or self.closed is not None:
            return
        if deliveries.expire(self._clock.monotonic(), self.terms.limits):
            self.wake()
        self._arm()
        self._store_soon()


def told_by_leader(error: KafkaError | OSError) -> KafkaError:
    """What a client is told when the stored state cannot be reached, or belongs to another leader by now."""
    if isinstance(error, KafkaError) and error.code in _FENCED:
        return KafkaError(ErrorCode.not_leader_or_follower, str(error))
    return KafkaError(ErrorCode.coordinator_not_available, str(error))


def _fail(waiting: Sequence[_Waiting], why: KafkaError) -> None:
    for one in waiting:
        if not one.stored.done():
            one.stored.set_exception(why)
            one.stored.exception()  # its connection may be gone: asyncio need not report it
