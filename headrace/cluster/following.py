"""Keeps a broker's view in step with the store: reads everything once, sets watches, and reads again what changed.

Every broker of a cluster runs this, including the controller; brokers do not send metadata to each other. What was read
is merged with `ClusterView.merge`. So it may arrive after the controller or a leader of this broker has published its
own writes: the newer state stays.

A topic or broker counts as deleted only if its own node was read and did not exist, and if the view still shows the
same state as when the read was sent. Its absence from a list of children proves nothing, because the list may be older
than a write of our own. For topics this matters because the files of their partitions are deleted with them.

A watch fires once and carries no data, so each read sets a new one. After a lost connection, watches may have been
missed: everything that is watched is read again.

When a broker dies, all its partitions change at nearly the same time. They are read in the order in which they changed,
some hundreds at a time, and each batch is applied immediately: the first elected leaders can serve while the others are
still being read.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from headrace.cluster import znodes
from headrace.cluster.store import NoNode, SessionState, Store
from headrace.cluster.view import ClusterView
from headrace.model.image import NO_CONTROLLER, BrokerImage, ClusterImage, PartitionImage, TopicImage

_AT_ONCE = 500  # nodes read in one round


class _FoundTopic(Struct, frozen=True):
    stored: znodes.StoredTopic
    version: int
    shown_id: uuid.UUID | None  # of the topic that the view showed under this name when the read was sent


class _Findings(Struct):
    """The results of one round of reads."""

    controller: int | None = None
    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    brokers_gone: dict[int, int] = field(default_factory=dict)  # id -> the epoch that the view showed
    topics: dict[str, _FoundTopic] = field(default_factory=dict)
    topics_gone: dict[str, uuid.UUID] = field(default_factory=dict)  # name -> the id that the view showed
    partitions: dict[uuid.UUID, dict[int, PartitionImage]] = field(default_factory=dict)
    settings: dict[str, tuple[dict[str, str], int]] = field(default_factory=dict)
    groups: tuple[dict[str, dict[str, str]], int] | None = None


class Following:
    """`begin` once; then `run` until cancelled, or until SessionLost."""

    def __init__(self, store: Store, view: ClusterView) -> None:
        self._store = store
        self._view = view
        self._watched: set[str] = set()
        self._changed: dict[str, None] = {}  # in the order in which they changed
        self._wake = asyncio.Event()

    async def begin(self) -> None:
        """Returns when the view shows the current content of the store."""
        self._store.on_session(self._on_session)
        await self._store.sync()
        cluster_id = znodes.decode_cluster_id((await self._store.get(znodes.CLUSTER_ID))[0])
        settings = {znodes.BROKER_SETTINGS, znodes.GROUP_SETTINGS}
        everything = {znodes.CONTROLLER, znodes.BROKERS, *settings, znodes.TOPICS}
        await self._look(everything, cluster_id)

    async def look_at_brokers(self) -> None:
        """Returns when the view shows the brokers that are registered now."""
        await self._look({znodes.BROKERS}, self._view.image.cluster_id)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._changed:
                changed = list(islice(self._changed, _AT_ONCE))
                for path in changed:
                    del self._changed[path]
                await self._look(changed, self._view.image.cluster_id)

    def _on_watch(self, path: str) -> None:
        self._watched.discard(path)
        self._changed[path] = None
        self._wake.set()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            for path in list(self._watched):
                self._on_watch(path)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _look(self, paths: Iterable[str], cluster_id: str) -> None:
        findings = _Findings()
        await asyncio.gather(*(self._read(path, findings) for path in paths))
        image = _applied(self._view.image, findings)
        self._view.merge(replace(image, cluster_id=cluster_id))

    async def _read(self, path: str, findings: _Findings) -> None:
        if path == znodes.CONTROLLER:
            await self._read_controller(findings)
        elif path == znodes.BROKERS:
            numbers = {int(name) for name in await self._children(path)}
            unwatched = {number for number in numbers if znodes.broker_path(number) not in self._watched}
            missing = self._view.image.brokers.keys() - numbers
            await asyncio.gather(*(self._read_broker(number, findings) for number in unwatched | missing))
        elif path == znodes.BROKER_SETTINGS:
            nodes = [f"{path}/{name}" for name in await self._children(path)]
            await asyncio.gather(*(self._read_settings(node, findings) for node in nodes if node not in self._watched))
        elif path == znodes.GROUP_SETTINGS:
            found = await self._get(path)
            findings.groups = None if found is None else (znodes.decode_group_settings(found[0]), found[1])
        elif path == znodes.TOPICS:
            names = set(await self._children(path))
            fresh = {name for name in names if znodes.topic_path(name) not in self._watched}
            absent = self._view.image.topics.keys() - names
            await asyncio.gather(*(self._read_topic(name, findings) for name in fresh | absent))
        elif path.startswith(f"{znodes.PARTITIONS}/"):
            await self._read_partition(path, findings)
        elif path.startswith(f"{znodes.TOPICS}/"):
            await self._read_topic(path.rpartition("/")[2], findings)
        elif path.startswith(f"{znodes.BROKERS}/"):
            await self._read_broker(int(path.rpartition("/")[2]), findings)
        else:
            await self._read_settings(path, findings)

    async def _children(self, path: str) -> list[str]:
        self._watched.add(path)  # before the read: the watch may fire before the response is handled
        return await self._store.children(path, self._on_watch)

    async def _get(self, path: str) -> tuple[bytes, int] | None:
        """Data and version; None if the node does not exist, and then no watch is set."""
        self._watched.add(path)
        try:
            data, stat = await self._store.get(path, self._on_watch)
        except NoNode:
            self._watched.discard(path)
            return None
        return data, stat.version

    async def _read_controller(self, findings: _Findings) -> None:
        self._watched.add(znodes.CONTROLLER)
        findings.controller = NO_CONTROLLER
        if await self._store.exists(znodes.CONTROLLER, self._on_watch) is not None:
            found = await self._get(znodes.CONTROLLER)
            if found is not None:
                findings.controller = znodes.decode_controller(found[0])

    async def _read_broker(self, number: int, findings: _Findings) -> None:
        known = self._view.image.brokers.get(number)
        found = await self._get(znodes.broker_path(number))
        if found is not None:
            findings.brokers[number] = znodes.broker_image(number, found[0])
        elif known is not None:
            findings.brokers_gone[number] = known.epoch

    async def _read_settings(self, path: str, findings: _Findings) -> None:
        found = await self._get(path)
        if found is not None:
            broker = znodes.broker_of_settings(path.rpartition("/")[2])
            findings.settings[broker] = znodes.decode_settings(path, found[0]), found[1]

    async def _read_topic(self, name: str, findings: _Findings) -> None:
        known = self._view.image.topics.get(name)
        found = await self._get(znodes.topic_path(name))
        if found is None:
            if known is not None:
                findings.topics_gone[name] = known.id
            return
        topic = znodes.decode_topic(name, found[0])
        paths = [znodes.partition_path(topic.id, index) for index in range(topic.partitions)]
        await asyncio.gather(*(self._read_partition(path, findings) for path in paths if path not in self._watched))
        findings.topics[name] = _FoundTopic(topic, found[1], None if known is None else known.id)

    async def _read_partition(self, path: str, findings: _Findings) -> None:
        found = await self._get(path)
        if found is not None:
            topic_id, index = znodes.place_of(path)
            state = znodes.decode_partition(path, found[0])
            findings.partitions.setdefault(topic_id, {})[index] = znodes.image_of(index, state, found[1])


# --- from what was read to an image ---------------------------------------------------------------------------------


def _applied(image: ClusterImage, findings: _Findings) -> ClusterImage:
    """The image with the findings applied; the view's merge decides which state is newer."""
    brokers = {**image.brokers, **findings.brokers}
    for number, epoch in findings.brokers_gone.items():
        # One round may read a broker twice, and it may come back in between. The positive result wins: it has a watch.
        came_back = number in findings.brokers
        if not came_back and number in image.brokers and image.brokers[number].epoch == epoch:
            del brokers[number]
    controller = image.controller_id if findings.controller is None else findings.controller
    changed = replace(image, brokers=dict(sorted(brokers.items())), controller_id=controller)
    for broker, (settings, version) in findings.settings.items():
        changed = changed.with_broker_settings(broker, settings, version)
    if findings.groups is not None:
        changed = replace(changed, group_settings=findings.groups[0], group_settings_version=findings.groups[1])
    for name, topic_id in findings.topics_gone.items():
        if name in image.topics and image.topics[name].id == topic_id:
            changed = changed.without_topic(name)
    return changed.with_topics(_changed_topics(image, findings))


def _changed_topics(image: ClusterImage, findings: _Findings) -> list[TopicImage]:
    topics: list[TopicImage] = []
    for name, found in findings.topics.items():
        known, stored = image.topics.get(name), found.stored
        known_id = None if known is None else known.id
        if known_id not in (stored.id, found.shown_id):
            continue  # it was deleted or created again meanwhile; the watch will fire
        states = {} if known is None or known_id != stored.id else {p.index: p for p in known.partitions}
        states |= findings.partitions.pop(stored.id, {})
        if len(states) >= stored.partitions:  # else it is being deleted, and the watch will fire
            partitions = tuple(states[index] for index in sorted(states))
            topics.append(TopicImage(name, stored.id, partitions, stored.settings, found.version, stored.base))
    for topic_id, states in findings.partitions.items():
        known = image.topics_by_id.get(topic_id)
        if known is not None:
            partitions = tuple(states.get(partition.index, partition) for partition in known.partitions)
            topics.append(replace(known, partitions=partitions))
    return topics
