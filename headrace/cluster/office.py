"""The office of controller: how it is taken, how it is waited for, and what whoever takes it cleans up.

The office is the ephemeral node `/controller`; what makes it safe is `/controller_epoch`: whoever takes office raises
it in the same multi, and every write of a controller checks the version it left there. So one that was replaced
without noticing can change nothing. Called by cluster.controller only.
"""

from __future__ import annotations

import asyncio

from headrace.cluster import znodes
from headrace.cluster.store import Check, Create, Delete, Operation, Set, Store


async def claim(store: Store, broker_id: int) -> int:
    """Take office; the epoch of it. NodeExists or BadVersion if another one has it.

    A node of this very session may be there already, when the answer to an earlier claim was lost: then the office is
    ours, and a higher epoch fences what we may still have under way. One of an earlier session of ours is another's.
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
    """Returns when nobody else is in office, or somebody else than before may be."""
    changed = asyncio.Event()
    holder = await store.exists(znodes.CONTROLLER, lambda _: changed.set())
    if holder is not None and holder.ephemeral_owner != store.session_id:
        await changed.wait()


async def rubbish(store: Store) -> list[Operation]:
    """What removes partition states that no topic names: left by a crash between two steps, or by a large topic.

    Only for one in office, and between two of its changes: what counts is which topics are stored, not which are known
    here, and nobody else can make one meanwhile.
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
