"""The controller's queue of changes: planned synchronously, written in batches, answered when they are durable.

A request is planned in the call itself, on top of `planned`: the published image plus the changes that are still being
written. So changes take effect in the order of the calls, and a handler can submit several topics without waiting. The
queue writes many planned changes at a time, merges them into the view once they are durable, and only then answers. A
change that fails is removed from `planned` (`cluster/change.py` says why this is safe). If it failed because somebody
else wrote to a partition in the meantime, the partition is read again and the change is planned again.

Owned by cluster.controller, which opens it with its controller epoch. Invariant: every write checks that epoch.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct

from headrace.cluster import office, znodes
from headrace.cluster.change import Change, Plan, in_multis
from headrace.cluster.store import (
    BadVersion,
    Check,
    ConnectionLost,
    NodeExists,
    NoNode,
    Operation,
    SessionLost,
    Store,
    StoreError,
    StoreFull,
)
from headrace.cluster.view import ClusterView
from headrace.model.image import ClusterImage
from headrace.model.names import collision_key
from headrace.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
_TRIES = 8  # of a change that conflicts with other writers


class _Asked(Struct):
    plan: Plan[Any]
    change: Change[Any]
    answer: asyncio.Future[Any]
    tries: int = 1


class ChangeQueue:
    """`open` with a controller epoch, `run` while this broker is the controller, `close`; then again with the next
    epoch."""

    def __init__(self, store: Store, view: ClusterView, broker_id: int) -> None:
        self._store = store
        self._view = view
        self._broker_id = broker_id
        self._epoch: int | None = None  # the version of /controller_epoch of our term
        self._planned = view.image
        self._names: dict[str, str] = {}  # collision key -> topic, of the planned image
        self._queue: list[_Asked] = []
        self._unsettled: list[_Asked] = []  # taken from the queue, being written
        self._queued = asyncio.Event()
        self._publishing = False
        view.subscribe(self._on_image)

    def open(self, epoch: int) -> None:
        self._epoch = epoch

    def close(self) -> None:
        """Whoever still waits is told that the office is lost."""
        self._epoch = None
        gone = KafkaError(ErrorCode.not_controller, f"broker {self._broker_id} is no longer the controller")
        for asked in (*self._unsettled, *self._queue):
            _refuse(asked.answer, gone)
        self._unsettled, self._queue = [], []
        self._replan()

    @property
    def is_open(self) -> bool:
        return self._epoch is not None

    @property
    def planned(self) -> ClusterImage:
        """The newest image, with what is being written."""
        return self._planned

    def collides_with(self, name: str) -> str | None:
        """A topic that could not be told from one of this name in metrics."""
        return self._names.get(collision_key(name))

    # --- planning ---------------------------------------------------------------------------------------------------

    def submit(self, plan: Plan[T], *, validate_only: bool = False) -> asyncio.Future[T]:
        """Plan a change now, and have it written; the answer comes when it is durable."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            if self._epoch is None:
                raise KafkaError(ErrorCode.not_controller, f"broker {self._broker_id} is not the controller")
            change = plan(self._planned, self._epoch)
        except KafkaError as error:
            _refuse(answer, error.with_traceback(None))  # its frames would keep the answer, which keeps the error
            return answer
        if validate_only:
            answer.set_result(change.result)
            return answer
        self._enqueue(_Asked(plan, change, answer))
        return answer

    def _enqueue(self, asked: _Asked) -> None:
        self._plan_on(asked.change)
        self._queue.append(asked)
        self._queued.set()

    def _plan_on(self, change: Change[Any]) -> None:
        before, self._planned = self._planned, change.delta(self._planned)
        if len(before.topics) != len(self._planned.topics):
            name = change.result.name
            if name in self._planned.topics:
                self._names[collision_key(name)] = name
            else:
                self._names.pop(collision_key(name), None)

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        if not self._publishing:
            self._replan()

    def _replan(self) -> None:
        """What is published, and what is still being written on top of it."""
        before, self._planned = self._planned, self._view.image
        pending = [*self._unsettled, *self._queue]
        if pending or before.topics.keys() != self._planned.topics.keys():
            self._names = {collision_key(name): name for name in self._planned.topics}
        for asked in pending:
            self._plan_on(asked.change)

    # --- writing ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what is asked for until cancelled. Raises StoreError when the office is lost."""
        while True:
            await self._queued.wait()
            self._queued.clear()
            self._unsettled, self._queue = self._queue, []
            await self._write_batch(list(self._unsettled))

    async def _write_batch(self, batch: list[_Asked]) -> None:
        """Neighbours of one step each go to the store together; a change of several steps goes alone."""
        for single, neighbours in itertools.groupby(batch, key=lambda asked: len(asked.change.steps) == 1):
            for group in [list(neighbours)] if single else [[asked] for asked in neighbours]:
                outcomes = await asyncio.gather(*(self.write(asked.change) for asked in group), return_exceptions=True)
                for asked, outcome in zip(group, outcomes, strict=True):
                    self._unsettled.pop(0)
                    await self._settle(asked, outcome)
                _stop_if_lost(outcomes)
                if any(asked.change.leaves_rubbish for asked in group) or (not single and outcomes != [None]):
                    with suppress(StoreFull):
                        await self.sweep()

    async def write(self, change: Change[Any]) -> None:
        """At once and past the queue: for one who has just taken office, and within."""
        for step in change.steps:
            await self._store.multi(self._fenced(step))

    def _fenced(self, operations: Sequence[Operation]) -> list[Operation]:
        assert self._epoch is not None
        return [Check(znodes.CONTROLLER_EPOCH, self._epoch), *operations]

    async def _settle(self, asked: _Asked, outcome: BaseException | None) -> None:
        if outcome is None:
            self._merge(asked.change.delta(self._view.image))
            if not asked.answer.done():
                asked.answer.set_result(asked.change.result)
            return
        self._replan()
        if was_overtaken(outcome) and asked.tries < _TRIES:
            try:
                await self._read_again(outcome)
            except StoreError as error:
                _refuse(asked.answer, as_kafka_error(error))
                raise
            self._plan_again(asked)
        else:
            _refuse(asked.answer, as_kafka_error(outcome) if isinstance(outcome, StoreError) else outcome)

    def _merge(self, image: ClusterImage) -> None:
        """Publish a change of our own, which `planned` knows already."""
        self._publishing = True
        self._view.merge(image)
        self._publishing = False

    def _plan_again(self, asked: _Asked) -> None:
        assert self._epoch is not None
        try:
            change = asked.plan(self._planned, self._epoch)
        except KafkaError as error:
            _refuse(asked.answer, error)
        else:
            self._enqueue(_Asked(asked.plan, change, asked.answer, asked.tries + 1))

    async def _read_again(self, overtaken: BaseException) -> None:
        """The partition that another wrote to, as it is stored now."""
        assert isinstance(overtaken, StoreError)
        folder, index = overtaken.path.rsplit("/", 2)[1:]
        await self._store.sync()
        try:
            data, stat = await self._store.get(overtaken.path)
        except NoNode:
            return
        state = znodes.decode_partition(overtaken.path, data)
        now = {uuid.UUID(folder): [znodes.image_of(int(index), state, stat.version)]}
        self._view.merge(self._view.image.with_partitions(now))

    async def sweep(self) -> None:
        """Remove what no topic names any more; between two changes only."""
        found = await office.rubbish(self._store)
        for step in in_multis(found) if found else ():
            await self._store.multi(self._fenced(step))


def _stop_if_lost(outcomes: Sequence[BaseException | None]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, SessionLost | ConnectionLost) or (
            isinstance(outcome, BadVersion) and outcome.path == znodes.CONTROLLER_EPOCH
        ):
            raise outcome


def was_overtaken(outcome: BaseException) -> bool:
    """Somebody, most likely its leader, wrote to a partition in between."""
    return isinstance(outcome, BadVersion) and outcome.path.startswith(f"{znodes.PARTITIONS}/")


def as_kafka_error(error: StoreError) -> KafkaError:
    if isinstance(error, StoreFull):
        return KafkaError(ErrorCode.kafka_storage_error, str(error))
    if isinstance(error, ConnectionLost):
        return KafkaError(ErrorCode.request_timed_out, f"whether this was done is not known: {error}")
    if isinstance(error, SessionLost) or error.path == znodes.CONTROLLER_EPOCH:
        return KafkaError(ErrorCode.not_controller, str(error))
    if isinstance(error, NodeExists) and error.path.startswith(znodes.TOPICS + "/"):
        return KafkaError(ErrorCode.topic_already_exists, f"topic {error.path.rpartition('/')[2]!r} already exists")
    return KafkaError(ErrorCode.unknown_server_error, f"the metadata changed meanwhile, try again ({error})")


def _refuse(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # retrieved: whoever asked may be gone, and asyncio would log each of very many
