"""The controller: the one broker that changes the cluster's metadata.

It takes office with one multi that creates the ephemeral `/controller` and raises `/controller_epoch`; every write
after that checks the version it left there, so a controller that was replaced without noticing can change nothing.

A request is planned in the call itself, against `_planned`: the published image plus the changes that are being
written. So the order of calls is the order of effects, and a handler need not wait for one topic before asking for
the next. `run` writes what was planned, many changes at a time, publishes each to the view when it is durable, and only
then answers. A change that fails drops out of `_planned` (see `cluster/change.py` for why that is safe).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from headrace.cluster import election, setting_changes, topic_changes, znodes
from headrace.cluster.change import Change, in_multis, set_partition
from headrace.cluster.setting_changes import Resource, SettingChange
from headrace.cluster.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    Operation,
    SessionLost,
    Set,
    Store,
    StoreError,
    StoreFull,
)
from headrace.cluster.topic_changes import NewTopic, TopicDefaults
from headrace.cluster.view import ClusterView, read_image
from headrace.model import topic_config
from headrace.model.image import ClusterImage, PartitionImage, TopicImage
from headrace.model.names import collision_key
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.entropy import Entropy

logger = logging.getLogger(__name__)

T = TypeVar("T")
_UNCLEAN = topic_config.BY_NAME["unclean.leader.election.enable"]
_Asked = tuple[Change[Any], "asyncio.Future[Any]"]


class Controller:
    """`take_office` once, then `run` for as long as the broker lives; requests in between."""

    def __init__(
        self, store: Store, view: ClusterView, broker_id: int, defaults: TopicDefaults, entropy: Entropy
    ) -> None:
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

        return self._submit(plan, validate_only)

    def delete_topic(self, name: str) -> asyncio.Future[TopicImage]:
        return self._submit(lambda image, _: topic_changes.delete_topic(image, name), False)

    def add_partitions(
        self, name: str, total: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> asyncio.Future[TopicImage]:
        return self._submit(
            lambda image, epoch: topic_changes.add_partitions(image, name, total, assignments, epoch), validate_only
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
        return self._submit(
            lambda image, _: setting_changes.alter_settings(image, resource, name, changes, replace_all=replace_all),
            validate_only,
        )

    def elect_leader(self, topic: str, index: int, *, unclean: bool = False) -> asyncio.Future[PartitionImage]:
        """The preferred replica leads again; or, with `unclean`, any live one where there is no leader."""

        def plan(image: ClusterImage, epoch: int) -> Change[PartitionImage]:
            partition = image.partition(topic, index)
            if partition is None:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{index}")
            elected = _asked_election(topic, partition, _alive(image), unclean)
            return Change(
                [[set_partition(image.topics[topic].id, elected, epoch)]],
                lambda image: image.with_topics([_with_partition(image.topics[topic], elected)]),
                elected,
            )

        return self._submit(plan, False)

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

    def _submit(self, plan: Callable[[ClusterImage, int], Change[T]], validate_only: bool) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            if self._epoch is None:
                raise KafkaError(ErrorCode.not_controller, f"broker {self._broker_id} is not the controller")
            change = plan(self._planned, self._epoch)
        except KafkaError as error:
            answer.set_exception(error)
            return answer
        if validate_only:
            answer.set_result(change.result)
            return answer
        self._plan_on(change)
        self._queue.append((change, answer))
        self._queued.set()
        return answer

    def _plan_on(self, change: Change[Any]) -> None:
        before, self._planned = self._planned, change.delta(self._planned)
        if len(before.topics) != len(self._planned.topics):
            name = change.result.name
            if name in self._planned.topics:
                self._names[collision_key(name)] = name
            else:
                del self._names[collision_key(name)]

    # --- writing ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what is asked for until cancelled. Raises StoreError when the office is lost."""
        try:
            while True:
                await self._queued.wait()
                self._queued.clear()
                self._unsettled, self._queue = self._queue, []
                await self._write(list(self._unsettled))
        finally:
            self._epoch = None
            lost = KafkaError(ErrorCode.not_controller, f"broker {self._broker_id} is no longer the controller")
            for _, answer in (*self._unsettled, *self._queue):
                _refuse(answer, lost)

    async def _write(self, batch: list[_Asked]) -> None:
        """Neighbours of one step each go to the store together; a change of several steps goes alone."""
        for single, neighbours in itertools.groupby(batch, key=lambda asked: len(asked[0].steps) == 1):
            for group in [list(neighbours)] if single else [[asked] for asked in neighbours]:
                writes = [self._write_steps(change) for change, _ in group]
                outcomes = await asyncio.gather(*writes, return_exceptions=True)
                for (change, answer), outcome in zip(group, outcomes, strict=True):
                    self._unsettled.pop(0)
                    self._settle(change, answer, outcome)
                self._stop_if_lost(outcomes)
                if any(change.leaves_rubbish for change, _ in group) or (not single and outcomes != [None]):
                    with suppress(StoreFull):
                        await self._sweep()

    async def _write_steps(self, change: Change[Any]) -> None:
        for step in change.steps:
            await self._store.multi(self._fenced(step))

    def _fenced(self, operations: Sequence[Operation]) -> list[Operation]:
        assert self._epoch is not None
        return [Check(znodes.CONTROLLER_EPOCH, self._epoch), *operations]

    def _settle(self, change: Change[T], answer: asyncio.Future[T], outcome: BaseException | None) -> None:
        if outcome is None:
            # Often nothing else is being written, and the planned image is the one to publish.
            alone = not self._unsettled and not self._queue
            self._view.publish(self._planned if alone else change.delta(self._view.image))
            if not answer.done():
                answer.set_result(change.result)
        else:
            _refuse(answer, _as_kafka_error(outcome) if isinstance(outcome, StoreError) else outcome)
            self._replan()

    def _replan(self) -> None:
        """Without a change that failed: what is published, and what is still being written on top of it."""
        self._planned = self._view.image
        self._names = {collision_key(name): name for name in self._planned.topics}
        for change, _ in (*self._unsettled, *self._queue):
            with suppress(KeyError):  # it built on the one that failed, and will fail in the store
                self._plan_on(change)

    def _stop_if_lost(self, outcomes: Sequence[BaseException | None]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, SessionLost) or (
                isinstance(outcome, BadVersion) and outcome.path == znodes.CONTROLLER_EPOCH
            ):
                raise outcome

    # --- office ----------------------------------------------------------------------------------------------------

    async def take_office(self) -> None:
        """Become the controller, give every partition a leader, publish the cluster. NodeExists: another one is."""
        _, stat = await self._store.get(znodes.CONTROLLER_EPOCH)
        me = znodes.encode_controller(self._broker_id)
        await self._store.multi(
            [Create(znodes.CONTROLLER, me, ephemeral=True), Set(znodes.CONTROLLER_EPOCH, me, stat.version)]
        )
        self._epoch = stat.version + 1
        image = await read_image(self._store)
        elected = _needed_elections(image)
        operations = [
            set_partition(topic.id, partition, self._epoch) for topic, partitions in elected for partition in partitions
        ]
        for step in in_multis(operations):
            await self._store.multi(self._fenced(step))
        image = image.with_topics(_with_partition(topic, *partitions) for topic, partitions in elected)
        self._view.publish(image)
        self._replan()
        await self._sweep()

    async def _sweep(self) -> None:
        """Remove partition states that no topic names: what a crash between two steps, or a large topic, left."""
        topics = {topic.id.hex: topic for topic in self._view.image.topics.values()}
        rubbish: list[Operation] = []
        for folder in await self._store.children(znodes.PARTITIONS):
            topic = topics.get(folder)
            path = f"{znodes.PARTITIONS}/{folder}"
            kept = 0 if topic is None else len(topic.partitions)
            rubbish += [Delete(f"{path}/{at}") for at in await self._store.children(path) if int(at) >= kept]
            if topic is None:
                rubbish.append(Delete(path))
        for step in in_multis(rubbish) if rubbish else ():
            await self._store.multi(self._fenced(step))


def _alive(image: ClusterImage) -> election.Alive:
    return {broker.id: broker.epoch for broker in image.brokers.values()}


def _needed_elections(image: ClusterImage) -> list[tuple[TopicImage, list[PartitionImage]]]:
    """Every partition whose leader is gone or was restarted, in its next state, by topic."""
    alive = _alive(image)
    needed: list[tuple[TopicImage, list[PartitionImage]]] = []
    for topic in image.topics.values():
        candidates = [partition for partition in topic.partitions if election.needs_leader(partition, alive)]
        if candidates:
            unclean = topic_config.value_in_force(_UNCLEAN, topic.settings, image.broker_settings.get("", {}))
            states = (election.elect(partition, alive, unclean=unclean) for partition in candidates)
            changed = [replace(state, version=state.version + 1) for state in states if state is not None]
            if changed:
                needed.append((topic, changed))
    return needed


def _asked_election(topic: str, partition: PartitionImage, alive: election.Alive, unclean: bool) -> PartitionImage:
    """The state after an election that a client asks for."""
    here = f"{topic}-{partition.index}"
    leads = not election.needs_leader(partition, alive)
    if leads and (unclean or partition.leader == partition.replicas[0]):
        raise KafkaError(ErrorCode.election_not_needed, f"{here} is led by broker {partition.leader} as it should be")
    if unclean:
        elected = election.elect(partition, alive, unclean=True)
        code = ErrorCode.eligible_leaders_not_available
    else:
        elected = election.elect_preferred(partition, alive)
        code = ErrorCode.preferred_leader_not_available
    if elected is None:
        raise KafkaError(code, f"no replica of {here} that may lead is alive and in sync")
    return replace(elected, version=partition.version + 1)


def _with_partition(topic: TopicImage, *changed: PartitionImage) -> TopicImage:
    partitions = list(topic.partitions)
    for partition in changed:
        partitions[partition.index] = partition
    return replace(topic, partitions=tuple(partitions))


def _as_kafka_error(error: StoreError) -> KafkaError:
    if isinstance(error, StoreFull):
        return KafkaError(ErrorCode.kafka_storage_error, str(error))
    if isinstance(error, SessionLost) or error.path == znodes.CONTROLLER_EPOCH:
        return KafkaError(ErrorCode.not_controller, str(error))
    if isinstance(error, NodeExists) and error.path.startswith(znodes.TOPICS + "/"):
        return KafkaError(ErrorCode.topic_already_exists, f"topic {error.path.rpartition('/')[2]!r} already exists")
    return KafkaError(ErrorCode.unknown_server_error, f"the metadata changed meanwhile, try again ({error})")


def _refuse(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
