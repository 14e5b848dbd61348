"""How a cluster is created, and how a broker registers in it.

Called while a broker starts, before anything reads metadata, and whenever it has lost its session. A broker's epoch is
the version of its persistent node `/brokers/epochs/N`, raised in the same multi that creates the ephemeral
`/brokers/ids/N`. So two starts of a broker never share an epoch, and a check of that version proves that the same start
is meant.

`unbroken_since` is the epoch since which a broker has lost nothing. It is kept across a start if the broker can show
that it still has everything of its last epoch: it stopped cleanly, or it never stopped. Otherwise it is set to the new
epoch. The same holds for the epoch since which it has had its disk, if it comes back with another disk.
"""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime

from msgspec import Struct

from headrace.cluster import znodes
from headrace.cluster.contact import Contact
from headrace.cluster.store import (
    BadVersion,
    ConnectionLost,
    Create,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Store,
)
from headrace.cluster.znodes import Past
from headrace.model.broker_token import NO_TOKEN, BrokerToken
from headrace.model.failure import Failure
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy


class BrokerIdentity(Struct, frozen=True):
    """Identifies a broker: its id, its address, its rack, and the disk that holds its data."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    disk_id: str = ""


async def found_cluster(store: Store, entropy: Entropy) -> str:
    """Create the nodes that every cluster has, unless they exist; returns the cluster's id."""
    await store.sync()
    while await store.exists(znodes.PRODUCER_IDS) is None:
        cluster_id = base64.urlsafe_b64encode(entropy.uuid().bytes).decode().rstrip("=")
        operations: list[Operation] = [Create(folder) for folder in znodes.FOLDERS]
        operations.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)))
        operations.append(Create(znodes.CONTROLLER_EPOCH, znodes.encode_controller(-1)))
        operations.append(Create(znodes.GROUP_SETTINGS, znodes.encode_group_settings({})))
        operations.append(Create(znodes.PRODUCER_IDS, znodes.encode_next_producer_id(0)))
        try:
            await store.multi(operations)
        except (NodeExists, ConnectionLost):
            await store.sync()  # another broker was faster, or our own write succeeded: read again
    while await store.exists(znodes.GROUP_SETTINGS) is None:  # a cluster created before groups had settings
        try:
            await store.create(znodes.GROUP_SETTINGS, znodes.encode_group_settings({}))
        except (NodeExists, ConnectionLost):
            await store.sync()
    return znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID))[0])


async def register_broker(
    store: Store,
    identity: BrokerIdentity,
    clock: Clock,
    *,
    token: BrokerToken = NO_TOKEN,
    kept_epoch: int | None = None,
    contact: Contact | None = None,
    patience_s: float = 0.0,
) -> int:
    """Register this broker for as long as the session lives; returns its epoch.

    `token` is new with each registration (`new_token`): other brokers recognize by it what this one forwards.
    `kept_epoch` is the last epoch of this broker of which it still has everything, None if unknown. An existing node of
    the same id may belong to a session that has not ended yet, so it gets `patience_s` of uninterrupted contact to
    disappear; Failure if it stays. Who registers repeatedly passes the `contact`.
    """
    contact = contact or Contact(store, clock)
    since_s = clock.monotonic()
    reply_lost = False
    while True:
        await store.sync()
        mine = await _own_registration(store, identity.broker_id) if reply_lost else None
        if mine is not None:
            return mine
        epoch, bump, past = await _next_epoch(store, identity, kept_epoch)
        place = identity.host, identity.port, identity.rack
        registration = znodes.Registration(
            *place, epoch, past.unbroken_since, past.disk_since, token, registered_ms=clock.now_ms()
        )
        create = Create(
            znodes.broker_path(identity.broker_id), znodes.encode_registration(registration), ephemeral=True
        )
        try:
            await store.multi([bump, create])
        except ConnectionLost:
            reply_lost = True
        except BadVersion:
            continue  # another broker with this id is starting; one of the two will find the other's node
        except NodeExists as error:
            if error.path != create.path:
                continue  # somebody else created the first epoch of this id
            waited_s = min(clock.monotonic() - since_s, contact.lasted_s())
            if waited_s < patience_s:
                await _gone_or_later(store, create.path, clock, patience_s - waited_s)
            elif (holder := await _registered(store, identity.broker_id)) is not None:
                raise Failure(_taken(identity.broker_id, holder[0])) from None
        else:
            return epoch


def new_token(entropy: Entropy) -> BrokerToken:
    return BrokerToken(entropy.uuid().hex)


async def unregister_broker(store: Store, broker_id: int) -> None:
    """Mark this broker as leaving, so that others take over while it can still serve its replicas."""
    try:
        await store.delete(znodes.broker_path(broker_id))
    except NoNode:
        pass


async def _registered(store: Store, broker_id: int) -> tuple[znodes.Registration, int] | None:
    """What is registered under this id, and the session that did it; None if nothing is."""
    try:
        data, stat = await store.get(znodes.broker_path(broker_id))
    except NoNode:
        return None
    return znodes.decode_registration(broker_id, data), stat.ephemeral_owner


async def _own_registration(store: Store, broker_id: int) -> int | None:
    """The epoch under which this session is registered, None if it is not."""
    found = await _registered(store, broker_id)
    return found[0].epoch if found is not None and found[1] == store.session_id else None


def _taken(broker_id: int, holder: znodes.Registration) -> str:
    since = ""
    if holder.registered_ms is not None:
        moment = datetime.fromtimestamp(holder.registered_ms / 1000, UTC)
        since = f", registered since {moment:%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"a broker with id {broker_id} is already running in this cluster, at {holder.host}:{holder.port}{since}; give "
        "this one another broker.id, or stop that one"
    )


async def _next_epoch(store: Store, identity: BrokerIdentity, kept_epoch: int | None) -> tuple[int, Operation, Past]:
    path = znodes.broker_epoch_path(identity.broker_id)
    try:
        data, before = await store.get(path)
    except NoNode:
        past = Past(0, identity.disk_id)
        return 0, Create(path, znodes.encode_broker_epoch(past)), past
    epoch = before.version + 1
    told = znodes.decode_broker_epoch(identity.broker_id, data) or Past(before.version)
    past = Past(
        told.unbroken_since if kept_epoch == before.version else epoch,
        identity.disk_id,
        told.disk_since if identity.disk_id == told.disk_id else epoch,
    )
    return epoch, Set(path, znodes.encode_broker_epoch(past), before.version), past


async def _gone_or_later(store: Store, path: str, clock: Clock, wait_s: float) -> None:
    """Returns when the node is gone, or after this time."""
    gone = asyncio.Event()
    if await store.exists(path, lambda _: gone.set()) is None:
        return
    timer = clock.call_later(wait_s, gone.set)
    try:
        await gone.wait()
    finally:
        timer.cancel()
