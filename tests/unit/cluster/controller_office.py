"""A controller in office on an embedded store, for tests that tell a story to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.cluster.controller import Controller
from headrace.cluster.embedded import EmbeddedStore
from headrace.cluster.membership import BrokerIdentity, found_cluster, register_broker
from headrace.cluster.topic_changes import TopicDefaults
from headrace.cluster.view import ClusterView
from headrace.model.settings_in_force import BrokerFile
from headrace.world.clock import SystemClock
from headrace.world.disk import RealDisk
from headrace.world.entropy import SeededEntropy


@dataclass
class Office:
    store: EmbeddedStore
    view: ClusterView
    controller: Controller
    running: asyncio.Task[None]


@asynccontextmanager
async def office(path: Path, brokers: int = 1, partitions: int = 1) -> AsyncIterator[Office]:
    disk = RealDisk(1)
    store = EmbeddedStore(disk, path)
    await store.open()
    entropy = SeededEntropy(path.stat().st_ino)
    await found_cluster(store, entropy)
    for broker in range(1, brokers + 1):
        await register_broker(store, BrokerIdentity(broker, "127.0.0.1", 9000 + broker, None), SystemClock())
    view = ClusterView()
    controller = Controller(store, view, 1, TopicDefaults(partitions, 1, BrokerFile(1)), entropy, SystemClock())
    await controller.take_office()
    running = asyncio.create_task(controller.run())
    try:
        yield Office(store, view, controller, running)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await store.close()
        disk.close()
