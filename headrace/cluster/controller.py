"""The controller: the one broker that changes the cluster's metadata.

Every broker has a Controller object and is a candidate (`cluster/office.py`). The active one answers requests through a
queue of changes (`cluster/change_queue.py`), keeps the partitions in their proper states (`cluster/tending.py`) and
returns leadership to the preferred replicas (`cluster/leader_balance.py`). The pure files beside it define each
request: `topic_changes`, `setting_changes`, `partition_requests`. Invariant: a broker that is not the active controller
changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from headrace.cluster import office, partition_requests, setting_changes, topic_changes, znodes
from headrace.cluster.change import Change, change_partitions, in_groups
from headrace.cluster.change_queue import ChangeQueue, as_kafka_error, was_overtaken
from headrace.cluster.leader_balance import BalanceTerms, LeaderBalance
from headrace.cluster.leavers import Leavers
from headrace.cluster.partition_requests import preferred_election
from headrace.cluster.recovery import LogEnds, Recovery
from headrace.cluster.setting_changes import Resource, SettingChange
from headrace.cluster.store import BadVersion, ConnectionLost, NodeExists, Store, StoreError
from headrace.cluster.tending import Tending, needed
from headrace.cluster.topic_changes import NewTopic, TopicDefaults
from headrace.cluster.view import ClusterView, read_image
from headrace.model.image import ClusterImage, PartitionImage, TopicImage
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

logger = logging.getLogger(__name__)


class Controller:
    """`take_office` for a single broker; `run` for as long as the session lives; requests in between."""

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
        session_timeout_s: float | None = None,
    ) -> None:
        """`log_ends` asks other brokers for the ends of their logs. `session_timeout_s` is how long a dead broker still
        counts as alive. A single broker needs neither."""
        self._store = store
        self._view = view
        self._broker_id = broker_id
        self._defaults = defaults
        self._entropy = entropy
        self._changes = ChangeQueue(store, view, broker_id)
        self._changed = asyncio.Event()  # the view
        self.recovery = Recovery(log_ends)
        self._tending = Tending(self._changes, self.recovery, clock, defaults)
        self._balance = LeaderBalance(self._changes, clock, balance or BalanceTerms())
        self._leavers: Leavers | None = None
        if session_timeout_s is not None:
            changes, write = self._changes, self._tending.write
            self._leavers = Leavers(store, clock, session_timeout_s, lambda: changes.planned, write)
        view.subscribe(self._on_image)

    @property
    def in_office(self) -> bool:
        return self._changes.is_open

    # --- requests --------------------------------------------------------------------------------------------------

    def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> asyncio.Future[TopicImage]:
        def plan(image: ClusterImage, epoch: int) -> Change[TopicImage]:
            change = topic_changes.create_topic(image, new, self._defaults, self._entropy.uuid(), epoch)
            other = self._changes.collides_with(new.name)
            if other is not None:
                raise KafkaError(
                    ErrorCode.invalid_topic_exception,
                    f"topic {new.name!r} collides with {other!r}: metrics cannot tell '.' from '_'",
                )
            return change

        return self._changes.submit(plan, validate_only=validate_only)

    def delete_topic(self, name: str) -> asyncio.Future[TopicImage]:
        return self._changes.submit(lambda image, _: topic_changes.delete_topic(image, name))

    def add_partitions(
        self, name: str, total: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> asyncio.Future[TopicImage]:
        return self._changes.submit(
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
        return self._changes.submit(
            lambda image, _: setting_changes.alter_settings(
                image, resource, name, changes, self._defaults.file, replace_all=replace_all
            ),
            validate_only=validate_only,
        )

    def elect_leader(self, topic: str, index: int, *, unclean: bool = False) -> asyncio.Future[PartitionImage]:
        """The preferred replica leads again; or, with `unclean`, the longest log where nobody leads."""
        if unclean and self.in_office:
            return asyncio.ensure_future(self._elect_unclean(TopicPartition(topic, index)))
        return self._changes.submit(lambda image, epoch: preferred_election(image, topic, index, epoch))

    async def _elect_unclean(self, place: TopicPartition) -> PartitionImage:
        def plan(image: ClusterImage, epoch: int) -> Change[PartitionImage]:
            return self.recovery.plan(image, place, ends, epoch, unclean=True)

        self.recovery.check(self._changes.planned, place, unclean=True)
        ends = (await self.recovery.ends(self._changes.planned, [place]))[place]
        elected = await self._changes.submit(plan)
        self.recovery.tell(place.topic, elected, ends)
        return elected

    def move(
        self, topic: str, index: int, target: Sequence[int] | None, *, factor_may_change: bool = True
    ) -> asyncio.Future[PartitionImage]:
        """The partition begins to move to these replicas; None: it goes back to those it had."""
        return self._changes.submit(
            lambda image, epoch: partition_requests.move(
                image, topic, index, target, epoch, factor_may_change=factor_may_change
            )
        )

    async def allocate_producer_ids(self, count: int = 1000) -> range:
        """A block of producer ids that was never handed out, even across crashes. Any broker may call this."""
        while True:
            data, stat = await self._store.get(znodes.PRODUCER_IDS)
            first = znodes.decode_next_producer_id(data)
            try:
                await self._store.set(znodes.PRODUCER_IDS, znodes.encode_next_producer_id(first + count), stat.version)
            except (BadVersion, ConnectionLost):
                continue  # another broker took these, or our own write succeeded unnoticed: take the next block
            except StoreError as error:
                raise as_kafka_error(error) from error
            return range(first, first + count)

    # --- office ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Campaign, act as controller, and campaign again after losing the role; until cancelled. Raises
        SessionLost."""
        while True:
            try:
                if not self.in_office:
                    await self._be_known()
                    await self.take_office()
                await self._work()
            except (NodeExists, BadVersion, ConnectionLost) as error:
                logger.info("broker %d is not the controller: %s", self._broker_id, error)
            finally:
                self._changes.close()
            await office.vacancy(self._store)

    async def _be_known(self) -> None:
        """A broker that does not see itself as live would consider others dead, too; one that is leaving does not
        campaign."""
        while self._broker_id not in self._view.image.brokers:
            self._changed.clear()
            await self._changed.wait()

    async def _work(self) -> None:
        works = [self._changes.run(), self._tending.run(), self._balance.run()]
        if self._leavers is not None:
            works.append(self._leavers.run())
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
        """Become the controller, and elect leaders. NodeExists or BadVersion if another broker is the controller."""
        epoch = await office.claim(self._store, self._broker_id)
        if not self._view.image.cluster_id:  # for a single broker, nothing else reads the store
            self._view.publish(await read_image(self._store))
        self._view.merge(replace(self._view.image, controller_id=self._broker_id))
        self._changes.open(epoch)
        logger.info("broker %d is the controller, epoch %d", self._broker_id, epoch)
        image = self._view.image
        groups = in_groups(needed(image, image.topics, self._defaults.file))
        await asyncio.gather(*(self._write_first(change_partitions(image, group, epoch)) for group in groups))
        self._tending.look(ClusterImage("", -1), self._view.image)  # partitions not yet settled, and conflicting writes
        await self._changes.sweep()

    async def _write_first(self, change: Change[None]) -> None:
        """In the order of the calls, many in flight at a time. Partitions with conflicts are settled afterwards."""
        try:
            await self._changes.write(change)
        except BadVersion as error:
            if not was_overtaken(error):
                raise
        else:
            self._view.merge(change.delta(self._view.image))

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self._changed.set()
        if self.in_office:
            self._tending.look(old, new)
