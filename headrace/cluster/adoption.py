"""Turns a single broker into the first broker of a cluster: copies its metadata from its own store to the cluster's.

Called by `headrace cluster adopt`, with the broker stopped. The target must be empty, because the tree is copied as a
whole and never merged with another. The copy may be interrupted at any point: a node `/adopting` exists from the first
write to the last, and the nodes that make a tree a cluster are created last, in the same multi that removes it. So a
broker that finds an unfinished copy sees no cluster, and a second attempt knows what it may remove.

Versions start at 0 in the target, except those that count starts (`/brokers/epochs/N`, `/controller_epoch`). These keep
their values, so that the epochs known to replicas and data folders stay valid.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from headrace.cluster import znodes
from headrace.cluster.change import in_multis
from headrace.cluster.store import Create, Delete, NodeExists, Operation, Set, Store
from headrace.model.failure import Failure

ADOPTING = "/adopting"
_LAST = (znodes.CLUSTER_ID, znodes.PRODUCER_IDS)
_OWN = (ADOPTING, "/zookeeper")  # allowed in a target that counts as empty


async def copy_cluster(source: Store, target: Store, place: str) -> int:
    """Copies all persistent nodes and returns their number. Raises Failure, naming `place`, if the target holds another
    cluster."""
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
    """Checks that the target is empty except for the remains of an earlier attempt of this adoption, and removes
    those."""
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
    """All persistent nodes, parents first: path, data, version."""
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
