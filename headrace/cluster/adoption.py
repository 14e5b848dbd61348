"""A broker that stood alone is taken into a cluster: its metadata is copied from its own store into the cluster's.

Called by `headrace cluster adopt`, with the broker stopped. The target must be empty: a tree is copied whole, and never
mixed with another. What a copy is to look like when it is interrupted decides the order: a node `/adopting` is there
from first to last, the nodes that make a tree a cluster come last and in the same multi that removes it. So a broker
that looks at an unfinished copy finds none, and a second attempt knows what it may remove.

Versions begin at 0 in the target, except those that are numbers of starts (`/brokers/epochs/N`, `/controller_epoch`):
they go on where they were, so that what replicas and data folders know about epochs stays true.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from headrace.cluster import znodes
from headrace.cluster.change import in_multis
from headrace.cluster.store import Create, Delete, NodeExists, Operation, Set, Store
from headrace.model.failure import Failure

ADOPTING = "/adopting"
_LAST = (znodes.CLUSTER_ID, znodes.PRODUCER_IDS)
_OWN = (ADOPTING, "/zookeeper")  # what may stand in a target that counts as empty


async def copy_cluster(source: Store, target: Store, place: str) -> int:
    """Copy everything that lasts; how many nodes. Failure, naming `place`, if another cluster is in the target."""
    cluster_id = znodes.decode_cluster_id((await source.get(znodes.CLUSTER_ID))[0])
    await target.sync()
    if await target.exists(znodes.CLUSTER_ID) is not None:
        there = znodes.decode_cluster_id((await target.get(znodes.CLUSTER_ID))[0])
        if there == cluster_id:
            return 0  # an earlier attempt got this far
        raise Failure(f"{place} holds the cluster {there} already; name another folder: host:port/folder")
    await _claim(target, cluster_id, place)
    nodes = [node async for node in _walk(source, "/") if node[0] not in _LAST]
    for step in in_multis([operation for node in nodes for operation in _copies(*node)]):
        await target.multi(step)
    last: list[Operation] = [Create(path, (await source.get(path))[0]) for path in _LAST]
    await target.multi([*last, Delete(ADOPTING)])
    return len(nodes) + len(last)


async def _claim(target: Store, cluster_id: str, place: str) -> None:
    """Make sure that nothing is there but what an earlier attempt of the same adoption left, and remove that."""
    mine = znodes.encode_cluster_id(cluster_id)
    try:
        await target.create(ADOPTING, mine)
    except NodeExists:
        if (await target.get(ADOPTING))[0] != mine:
            raise Failure(
                f"another broker is being adopted at {place}; name another folder: host:port/folder"
            ) from None
        left = [path async for path, _, _ in _walk(target, "/") if path not in _OWN and not path.startswith(_OWN)]
        for step in _steps([Delete(path) for path in reversed(left)]):
            await target.multi(step)
        return
    if any(f"/{name}" not in _OWN for name in await target.children("/")):
        await target.delete(ADOPTING)
        raise Failure(f"{place} is not empty; name a folder for the cluster: host:port/folder")


async def _walk(store: Store, path: str) -> AsyncIterator[tuple[str, bytes, int]]:
    """Every node that no session owns, parents first: path, data, version."""
    for name in await store.children(path):
        below = f"{path.rstrip('/')}/{name}"
        data, stat = await store.get(below)
        if stat.ephemeral_owner == 0:
            yield below, data, stat.version
            async for node in _walk(store, below):
                yield node


def _copies(path: str, data: bytes, version: int) -> list[Operation]:
    counts = path == znodes.CONTROLLER_EPOCH or path.startswith(f"{znodes.BROKER_EPOCHS}/")
    return [Create(path, data), *(Set(path, data) for _ in range(version if counts else 0))]


def _steps(operations: Sequence[Operation]) -> list[list[Operation]]:
    return in_multis(operations) if operations else []
