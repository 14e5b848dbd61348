"""Views that readers made by naming tags, or by listing what is pending: kept while somebody needs them, deleted when
nobody has for a day.

Only views whose name is the one that clients derive from base and filter (model/tag_filter.py), or from the base alone
(model/delays.py); views that a person has named stay. Every broker says of such a view that it is needed, by changing
its setting `headrace.view.used`, while a reader of it was here lately or a group that is kept here has committed
offsets on it. The controller deletes a view whose setting has not changed for `headrace.view.idle.ms`. It counts in its
own looks, and compares no clocks, so a clock that jumps or a process that was stopped deletes nothing. A view that is
deleted too early costs its readers a moment: they find that it is gone, and the next one makes it again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

from headrace.api.contract import Caller, Handler, Peer, Request
from headrace.api.pieces import settled
from headrace.api.view_fetch import Views
from headrace.cluster.controller import Controller
from headrace.cluster.view import ClusterView
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.model.delays import PENDING_SUFFIX
from headrace.model.image import TopicImage
from headrace.model.tag_filter import VIEW_USED, tag_filter
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

logger = logging.getLogger(__name__)

_LOOKS = 8  # within the time after which a view is idle
_TOPIC_RESOURCE, _SET = 2, 0
_VERSION = 1
_OURSELVES = Caller(Peer("", 0, "", 0))


class IdleViews:
    """`run` until cancelled."""

    def __init__(
        self,
        view: ClusterView,
        views: Views,
        groups: GroupCoordinator,
        controller: Controller,
        alter: Handler,
        clock: Clock,
        idle_ms: int,
    ) -> None:
        """`alter` handles IncrementalAlterConfigs, on whichever broker is the controller."""
        self._view = view
        self._views = views
        self._groups = groups
        self._controller = controller
        self._alter = alter
        self._clock = clock
        self._pause_s = idle_ms / 1000 / _LOOKS
        self._unchanged: dict[uuid.UUID, tuple[str, int]] = {}  # what the setting was, and for how many looks

    async def run(self) -> None:
        while True:
            since_s = self._clock.monotonic()
            await self._clock.sleep(self._pause_s)
            try:
                await self.look(since_s)
            except (KafkaError, OSError) as error:
                logger.info("views are looked at again later: %s", error)

    async def look(self, since_s: float) -> None:
        """Say which views have been needed here since then; as the controller, delete those that nobody needs."""
        shared = list(self._shared())
        if not shared:
            return
        committed = {topic for _, topic, _, _ in self._groups.group_offsets()}
        needed = [view for view in shared if view.name in committed or self._was_read(view, since_s)]
        for view in needed:
            await self._say_used(view)
        if self._controller.in_office:
            await self._delete_idle(shared, {view.id for view in needed})

    def _shared(self) -> Iterator[TopicImage]:
        image = self._view.image
        for topic in image.topics.values():
            base = image.base_of(topic)
            if topic.is_view and base is not None and topic.name == _shared_name(topic, base):
                yield topic

    def _was_read(self, view: TopicImage, since_s: float) -> bool:
        count = self._views.counts.get(view.id)
        return count is not None and count.read_s >= since_s

    async def _say_used(self, view: TopicImage) -> None:
        change = Message(name=VIEW_USED, config_operation=_SET, value=str(self._clock.now_ms()))
        resource = Message(resource_type=_TOPIC_RESOURCE, resource_name=view.name, configs=[change])
        body = Message(resources=[resource], validate_only=False)
        await settled(self._alter(Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, _VERSION, "", body, _OURSELVES)))

    async def _delete_idle(self, shared: list[TopicImage], needed: set[uuid.UUID]) -> None:
        known, self._unchanged = self._unchanged, {}
        for view in shared:
            used = view.settings.get(VIEW_USED, "")
            before, looks = known.get(view.id, (used, -1))
            looks = looks + 1 if before == used and view.id not in needed else 0
            self._unchanged[view.id] = used, looks
            if looks >= _LOOKS:
                logger.info("view %s is deleted: nobody has read it for a while, and no group has offsets", view.name)
                await self._controller.delete_topic(view.name)


def _shared_name(view: TopicImage, base: TopicImage) -> str:
    """What clients would call this view."""
    if view.shows_pending:
        return base.name + PENDING_SUFFIX
    return tag_filter(view.settings).view_name(base.name)
