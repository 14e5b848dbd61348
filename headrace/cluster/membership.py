"""How a cluster begins, and how a broker becomes a member of it.

Called once while a broker starts, before anything asks for metadata. A broker's epoch is the version of its persistent
node `/brokers/epochs/N`, raised in the same multi that creates the ephemeral `/brokers/ids/N`: two starts of one broker
never share an epoch, and a check of that version proves that the same start is still meant.
"""

from __future__ import annotations

import base64

from headrace.cluster import znodes
from headrace.cluster.store import Create, NodeExists, Operation, Set, Store
from headrace.model.failure import Failure
from headrace.world.entropy import Entropy


async def found_cluster(store: Store, entropy: Entropy) -> str:
    """Make what every cluster has, unless it is there already; the cluster's id."""
    if await store.exists(znodes.PRODUCER_IDS) is None:
        cluster_id = base64.urlsafe_b64encode(entropy.uuid().bytes).decode().rstrip("=")
        operations: list[Operation] = [Create(folder) for folder in znodes.FOLDERS]
        operations.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)))
        operations.append(Create(znodes.CONTROLLER_EPOCH, znodes.encode_controller(-1)))
        operations.append(Create(znodes.PRODUCER_IDS, znodes.encode_next_producer_id(0)))
        try:
            await store.multi(operations)
        except NodeExists:
            pass  # another broker of the cluster was faster
    return znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID))[0])


async def register_broker(store: Store, broker_id: int, host: str, port: int, rack: str | None) -> int:
    """Announce this broker for as long as the session lives; its epoch. Failure if its id is taken."""
    epochs = znodes.broker_epoch_path(broker_id)
    before = await store.exists(epochs)
    epoch = 0 if before is None else before.version + 1
    bump: Operation = Create(epochs) if before is None else Set(epochs, b"", before.version)
    registration = znodes.encode_registration(znodes.Registration(host, port, rack, epoch))
    try:
        await store.multi([bump, Create(znodes.broker_path(broker_id), registration, ephemeral=True)])
    except NodeExists:
        raise Failure(
            f"a broker with id {broker_id} is already running in this cluster; give this one another broker.id"
        ) from None
    return epoch
