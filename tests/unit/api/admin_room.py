"""A controller in office with one broker, and requests that go through real bytes in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.api.contract import Caller, Handler, Peer, Request
from headrace.api.pieces import settled
from headrace.cluster.controller import Controller
from headrace.cluster.embedded import EmbeddedStore
from headrace.cluster.membership import BrokerIdentity, found_cluster, register_broker
from headrace.cluster.store import Store
from headrace.cluster.topic_changes import TopicDefaults
from headrace.cluster.view import ClusterView
from headrace.model.image import BrokerImage
from headrace.model.settings_in_force import BrokerFile
from headrace.wire.messages import (
    Message,
    check_fields,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from headrace.world.clock import AdvanceableClock
from headrace.world.disk import RealDisk
from headrace.world.entropy import SeededEntropy

PEER = Peer("10.0.0.9", 5555, "127.0.0.1", 9092)
BROKER_ID = 1


@dataclass
class AdminRoom:
    store: Store
    view: ClusterView
    controller: Controller
    clock: AdvanceableClock


def address_of(peer: Peer, broker: BrokerImage) -> tuple[str, int]:
    return peer.local_host, peer.local_port


async def ask(handler: Handler, api_key: int, version: int, **body: Any) -> Message:
    """What a client of this version would get, field by field."""
    sent = encode_request(api_key, version, Message(**body))
    decoded = decode_request(api_key, version, memoryview(sent))
    reply = await settled(handler(Request(api_key, version, "test", decoded, Caller(PEER))))
    check_fields(api_key, "response", reply)
    answer = b"".join(encode_response(api_key, version, reply))
    return decode_response(api_key, version, memoryview(answer))


@asynccontextmanager
async def admin_room(folder: Path) -> AsyncIterator[AdminRoom]:
    disk = RealDisk(1)
    store = EmbeddedStore(disk, folder / "metadata.db")
    await store.open()
    entropy, clock = SeededEntropy(7), AdvanceableClock()
    await found_cluster(store, entropy)
    await register_broker(store, BrokerIdentity(BROKER_ID, "registered.example", 9092, "rack-a"), clock)
    view = ClusterView()
    controller = Controller(store, view, BROKER_ID, TopicDefaults(1, 1, BrokerFile(BROKER_ID)), entropy, clock)
    await controller.take_office()
    running = asyncio.create_task(controller.run())
    try:
        yield AdminRoom(store, view, controller, clock)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await store.close()
        disk.close()


AdminStory = Callable[[AdminRoom], Awaitable[None]]


def tell(folder: Path, story: AdminStory) -> None:
    async def whole() -> None:
        async with admin_room(folder) as room:
            await asyncio.wait_for(story(room), 30)

    asyncio.run(whole())
