"""The controller: the one broker that changes the cluster's metadata.

Every broker has one of these and stands for the office (`cluster/office.py`); the one that has it answers requests and
tends the partitions (`cluster/tending.py`). Every write checks the controller epoch.

A request is planned in the call itself, against `planned`: the published image plus the changes that are being
written. So the order of calls is the order of effects, and a handler need not wait for one topic before asking for
the next. What was planned is written, many changes at a time, merged into the view when it is durable, and only then
answered. A change that fails drops out of `planned` (see `cluster/change.py` for why that is safe); if it failed
because somebody else wrote to a partition meanwhile, that partition is read again and the change planned anew.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from headrace.cluster import office, partition_requests, setting_changes, topic_changes, znodes
from headrace.cluster.change import Change, Plan, change_partitions, in_groups, in_multis
from headrace.cluster.leader_balance import BalanceTerms, LeaderBalance
from headrace.cluster.partition_requests import known_partition, preferred_election
from headrace.cluster.recovery import LogEnds, Recovery
from headrace.cluster.setting_changes import Resource, SettingChange
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
from headrace.cluster.tending import Tending, needed
from headrace.cluster.topic_changes import NewTopic, TopicDefaults
from headrace.cluster.view import ClusterView, read_image
from headrace.model.image import ClusterImage, PartitionImage, TopicImage
from headrace.model.names import collision_key
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

logger = logging.getLogger(__name__)

T = TypeVar("T")
_TRIES = 8  # of a change that others overtook


@dataclass(slots=True)
class _Asked:
    plan: Plan[Any]
    change: Change[Any]
    answer: asyncio.Future[Any]
    tries: int = 1


class Controller:
    """`take_office` where this broker is alone; `run` for as long as the session lives; requests in between."""

    def __init__(
        self,
        store: Store,
        view: ClusterView,
        broker_id: int,
        defaults: TopicDefaults,
        entropy: Entropy,
        clock: Clock,
        *,
        log_ends: LogEnds | None = None,
        balance: BalanceTerms | None = None,
    ) -> None:
        """`log_ends` asks other brokers how long their logs are; one that stands alone needs none."""
        self._store = store
        self._view = view
        self._broker_id = broker_id
        self._defaults = defaults
        self._entropy = entropy
        self._epoch: int | None = None  # the version of /controller_epoch under which we are in office
        self._planned = view.image
        self._names: dict[str, str] = {}  # collision key -> topic, of the planned image
        self._queue: list[_Asked] = []
        self._unsettled: list[_Asked] = []  # taken from the queue, being written
        self._queued = asyncio.Event()
        self._publishing = False
        self._changed = asyncio.Event()  # the view
        self.recovery = Recovery(log_ends)
        self._tending = Tending(self, self.recovery, clock, defaults)
        self._balance = LeaderBalance(self, clock, balance or BalanceTerms())
        view.subscribe(self._on_image)

    @property
    def in_office(self) -> bool:
        return self._epoch is not None

    @property
    def planned(self) -> ClusterImage:
        return self._planned

    # --- requests --------------------------------------------------------------------------------------------------

    def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> asyncio.Future[TopicImage]:
        def plan(image: ClusterImage, epoch: int) -> Change[TopicImage]:
            change = topic_changes.create_topic(image, new, self._defaults, self._entropy.uuid(), epoch)
            other = self._names.get(collision_key(new.name))
            if other is not None:
                raise KafkaError(
                    ErrorCode.invalid_topic_exception,
                    f"topic {new.name!r} collides with {other!r}: metrics cannot tell '.' from '_'",
                )
            return change

        return self.submit(plan, validate_only=validate_only)

    def delete_topic(self, name: str) -> asyncio.Future[TopicImage]:
        return self.submit(lambda image, _: topic_changes.delete_topic(image, name))

    def add_partitions(
        self, name: str, total: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> asyncio.Future[TopicImage]:
        return self.submit(
            lambda image, epoch: topic_changes.add_partitions(image, name, total, assignments, epoch),
            validate_only=validate_only,
        )

    def alter_settings(
        self,
        resource: Resource,
        name: str,
        changes: Sequence[SettingChange],
        *,
        replace_all: bool = False,
        validate_only: bool = False,
    ) -> asyncio.Future[Mapping[str, str]]:
        """The settings after the change. `name` of a broker may be "": all brokers."""
        return self.submit(
            lambda image, _: setting_changes.alter_settings(image, resource, name, changes, replace_all=replace_all),
            validate_only=validate_only,
        )

    def elect_leader(self, topic: str, index: int, *, unclean: bool = False) -> asyncio.Future[PartitionImage]:
        """The preferred replica leads again; or, with `unclean`, the longest log where nobody leads."""
        if unclean:
            return asyncio.ensure_future(self._elect_unclean(topic, index))
        return self.submit(lambda image, epoch: preferred_election(image, topic, index, epoch))

    async def _elect_unclean(self, topic: str, index: int) -> PartitionImage:
        known_partition(self._planned, topic, index)
        if self._epoch is None:
            raise self._elsewhere()
        ends = (await self.recovery.ends(self._planned, [(topic, index)]))[topic, index]
        elected = await self.submit(
            lambda image, epoch: self.recovery.plan(image, (topic, index), ends, epoch, unclean=True)
        )
        self.recovery.tell(topic, elected, ends)
        return elected

    def move(
        self, topic: str, index: int, target: Sequence[int] | None, *, factor_may_change: bool = True
    ) -> asyncio.Future[PartitionImage]:
        """The partition begins to move to these replicas; None: it goes back to those it had."""
        return self.submit(
            lambda image, epoch: partition_requests.move(
                image, topic, index, target, epoch, factor_may_change=factor_may_change
            )
        )

    async def allocate_producer_ids(self, count: int = 1000) -> range:
        """Ids that nobody was ever given, also after a crash. Any broker may do this, in office or not."""
        while True:
            data, stat = await self._store.get(znodes.PRODUCER_IDS)
            first = znodes.decode_next_producer_id(data)
            try:
                await self._store.set(znodes.PRODUCER_IDS, znodes.encode_next_producer_id(first + count), stat.version)
            except BadVersion:
                continue  # somebody else took these; each round one of us goes on
            except StoreError as error:
                raise _as_kafka_error(error) from error
            return range(first, first + count)

    def submit(self, plan: Plan[T], *, validate_only: bool = False) -> asyncio.Future[T]:
        """Plan a change now, and have it written; the answer comes when it is durable."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            if self._epoch is None:
                raise self._elsewhere()
            change = plan(self._planned, self._epoch)
        except KafkaError as error:
            answer.set_exception(error)
            return answer
        if validate_only:
            answer.set_result(change.result)
            return answer
        self._enqueue(_Asked(plan, change, answer))
        return answer

    def _elsewhere(self) -> KafkaError:
        return KafkaError(ErrorCode.not_controller, f"broker {self._broker_id} is not the controller")

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
                del self._names[collision_key(name)]

    # --- writing ---------------------------------------------------------------------------------------------------

    async def _write_queue(self) -> None:
        """Write what is asked for until cancelled. Raises StoreError when the office is lost."""
        while True:
            await self._queued.wait()
            self._queued.clear()
            self._unsettled, self._queue = self._queue, []
            await self._write(list(self._unsettled))

    async def _write(self, batch: list[_Asked]) -> None:
        """Neighbours of one step each go to the store together; a change of several steps goes alone."""
        for single, neighbours in itertools.groupby(batch, key=lambda asked: len(asked.change.steps) == 1):
            for group in [list(neighbours)] if single else [[asked] for asked in neighbours]:
                outcomes = await asyncio.gather(
                    *(self._write_steps(asked.change) for asked in group), return_exceptions=True
                )
                for asked, outcome in zip(group, outcomes, strict=True):
                    self._unsettled.pop(0)
                    await self._settle(asked, outcome)
                _stop_if_lost(outcomes)
                if any(asked.change.leaves_rubbish for asked in group) or (not single and outcomes != [None]):
                    with suppress(StoreFull):
                        await self._sweep()

    async def _write_steps(self, change: Change[Any]) -> None:
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
        if _was_overtaken(outcome) and asked.tries < _TRIES:
            try:
                await self._read_again(outcome)
            except StoreError as error:
                _refuse(asked.answer, _as_kafka_error(error))
                raise
            self._plan_again(asked)
        else:
            _refuse(asked.answer, _as_kafka_error(outcome) if isinstance(outcome, StoreError) else outcome)

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
        try:
            data, stat = await self._store.get(overtaken.path)
        except NoNode:
            return
        state = znodes.decode_partition(overtaken.path, data)
        topic_id = uuid.UUID(folder)
        self._view.merge(self._view.image.with_partitions(topic_id, [znodes.image_of(int(index), state, stat.version)]))

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self._changed.set()
        if not self._publishing:
            self._replan()
        if self._epoch is not None:
            self._tending.look(old, new)

    def _replan(self) -> None:
        """What is published, and what is still being written on top of it."""
        before, self._planned = self._planned, self._view.image
        pending = [*self._unsettled, *self._queue]
        if pending or before.topics.keys() != self._planned.topics.keys():
            self._names = {collision_key(name): name for name in self._planned.topics}
        for asked in pending:
            self._plan_on(asked.change)

    # --- office ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stand for the office, work in it, and stand again when it is lost; until cancelled. Raises SessionLost."""
        while True:
            try:
                if self._epoch is None:
                    await self._be_known()
                    await self.take_office()
                await self._work()
            except (NodeExists, BadVersion, ConnectionLost) as error:
                logger.info("broker %d is not the controller: %s", self._broker_id, error)
            finally:
                self._leave_office()
            await office.vacancy(self._store)

    async def _be_known(self) -> None:
        """Who does not see itself among the living would take others for dead, too; and who leaves stays out."""
        while self._broker_id not in self._view.image.brokers:
            self._changed.clear()
            await self._changed.wait()

    async def _work(self) -> None:
        works = (self._write_queue(), self._tending.run(), self._balance.run())
        parts = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def take_office(self) -> None:
        """Become the controller, and give every partition a leader. NodeExists or BadVersion: another one is."""
        epoch = await office.claim(self._store, self._broker_id)
        if not self._view.image.cluster_id:  # nobody follows the store for a broker that stands alone
            self._view.publish(await read_image(self._store))
        self._view.merge(replace(self._view.image, controller_id=self._broker_id))
        self._epoch = epoch
        logger.info("broker %d is the controller, epoch %d", self._broker_id, epoch)
        image = self._view.image
        for group in in_groups(needed(image, image.topics, self._defaults.settings)):
            change = change_partitions(image, group, epoch)
            try:
                await self._write_steps(change)
            except BadVersion as error:
                if not _was_overtaken(error):
                    raise
            else:
                self._view.merge(change.delta(self._view.image))
        self._tending.look(ClusterImage("", -1), self._view.image)  # what is left, and what others overtook
        await self._sweep()

    def _leave_office(self) -> None:
        self._epoch = None
        gone = KafkaError(ErrorCode.not_controller, f"broker {self._broker_id} is no longer the controller")
        for asked in (*self._unsettled, *self._queue):
            _refuse(asked.answer, gone)
        self._unsettled, self._queue = [], []
        self._replan()

    async def _sweep(self) -> None:
        found = await office.rubbish(self._store)
        for step in in_multis(found) if found else ():
            await self._store.multi(self._fenced(step))


def _stop_if_lost(outcomes: Sequence[BaseException | None]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, SessionLost | ConnectionLost) or (
            isinstance(outcome, BadVersion) and outcome.path == znodes.CONTROLLER_EPOCH
        ):
            raise outcome


def _was_overtaken(outcome: BaseException) -> bool:
    """Somebody, most likely its leader, wrote to a partition in between."""
    return isinstance(outcome, BadVersion) and outcome.path.startswith(f"{znodes.PARTITIONS}/")


def _as_kafka_error(error: StoreError) -> KafkaError:
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
