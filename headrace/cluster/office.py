"""The controller role: how a broker becomes controller, how it waits for the role, and what it cleans up then.

The role is the ephemeral node `/controller`. What makes it safe is `/controller_epoch`: a broker that becomes
controller raises it in the same multi, and every write of a controller checks that version. So a controller that was
replaced without noticing can change nothing. Called by cluster.controller only.
"""

from __future__ import annotations

import asyncio

from headrace.cluster import znodes
from headrace.cluster.store import Check, Create, Delete, Operation, Set, Store


async def claim(store: Store, broker_id: int) -> int:
    """Become controller; returns the controller epoch. NodeExists or BadVersion if another broker is controller.

    The node may already exist with this session, if the response to an earlier attempt was lost. Then this broker is
    the controller, and a higher epoch fences its own pending writes. A node of an earlier session counts as another
    broker's.
    """
    await store.sync()
    _, epoch = await store.get(znodes.CONTROLLER_EPOCH)
    holder = await store.exists(znodes.CONTROLLER)
    me = znodes.encode_controller(broker_id)
    take: Operation = Create(znodes.CONTROLLER, me, ephemeral=True)
    if holder is not None and holder.ephemeral_owner == store.session_id:
        take = Check(znodes.CONTROLLER, holder.version)
    await store.multi([take, Set(znodes.CONTROLLER_EPOCH, me, epoch.version)])
    return epoch.version + 1


async def vacancy(store: Store) -> None:
    """Returns when there is no other controller, or when the controller may have changed."""
    changed = asyncio.Event()
    holder = await store.exists(znodes.CONTROLLER, lambda _: changed.set())
    if holder is not None and holder.ephemeral_owner != store.session_id:
        await changed.wait()


async def rubbish(store: Store) -> list[Operation]:
    """Operations that remove partition states without a topic, left by a crash between two steps, or by a large topic.

    Only for the active controller, and only between two of its changes: it reads the stored topics, not the view, and
    nobody else can create a topic in the meantime.
    """
    await store.sync()
    names = await store.children(znodes.TOPICS)
    stored = await asyncio.gather(*(store.get(znodes.topic_path(name)) for name in names))
    topics = [znodes.decode_topic(name, data) for name, (data, _) in zip(names, stored, strict=True)]
    wanted = {topic.id.hex: topic.partitions for topic in topics}
    folders = await store.children(znodes.PARTITIONS)
    states = await asyncio.gather(*(store.children(f"{znodes.PARTITIONS}/{folder}") for folder in folders))
    found: list[Operation] = []
    for folder, indexes in zip(folders, states, strict=True):
        path = f"{znodes.PARTITIONS}/{folder}"
        found += [Delete(f"{path}/{index}") for index in indexes if int(index) >= wanted.get(folder, 0)]
        if folder not in wanted:
            found.append(Delete(path))
    return found
