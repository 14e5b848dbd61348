"""`headrace cluster adopt`: makes a standalone broker the first broker of a cluster, with all its data.

Called by main through headrace.cli.cluster. The broker must be stopped: its data folder is locked meanwhile. Records
stay where they are; only the metadata moves, from the folder's own store into ZooKeeper. Invariant: until the copy is
complete the folder is unchanged; afterwards it can only be started in the cluster.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import examples
from headrace.cli.screen import plural, remark
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from headrace.cluster.store import Store

REACH_S = 15.0
METADATA = "metadata.db"

ZooKeeperOption = Annotated[
    str,
    typer.Option(
        "--zookeeper", metavar="HOSTS", help="ZooKeeper as host:port,host:port, and a /folder for the cluster."
    ),
]
EXAMPLES = examples("headrace cluster adopt --data ./data --zookeeper zk1:2181,zk2:2181/headrace")


def adopt(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The data folder of the stopped broker.")],
    zookeeper: ZooKeeperOption,
) -> None:
    """Move a standalone broker's metadata into ZooKeeper, so that more brokers can join it."""
    if not (data / METADATA).exists():
        raise Failure(f"{data} is not the data folder of a standalone broker: there is no {METADATA} in it")
    copied = asyncio.run(_adopt(data, zookeeper))
    typer.echo(f"{plural(copied, 'node')} copied to {zookeeper}")
    remark(f"start the broker with: headrace serve --data {data} --zookeeper {zookeeper}")


async def _adopt(data: Path, zookeeper: str) -> int:
    from headrace.cluster.adoption import copy_cluster
    from headrace.cluster.embedded import EmbeddedStore
    from headrace.log.folder import LOCK
    from headrace.world.disk import RealDisk

    disk = RealDisk()
    release = disk.lock(data / LOCK)
    if release is None:
        raise Failure(f"the data folder {data} is in use; stop its broker first")
    try:
        source = EmbeddedStore(disk, data / METADATA)
        await source.open()
        try:
            target = await open_zookeeper(zookeeper)
            try:
                copied = await copy_cluster(source, target, zookeeper)
            finally:
                await target.close()
        finally:
            await source.close()
        disk.rename(data / METADATA, data / f"{METADATA}.adopted")
        disk.sync_dir(data)
    finally:
        release()
        disk.close()
    return copied


async def open_zookeeper(hosts: str) -> Store:
    """A ZooKeeper session for a command, with a timeout."""
    from headrace.cluster.zookeeper import ZooKeeperStore
    from headrace.world.clock import SystemClock

    store = ZooKeeperStore(hosts, 10.0, SystemClock())
    try:
        await asyncio.wait_for(store.open(), REACH_S)
    except TimeoutError:
        raise Failure(f"cannot reach ZooKeeper at {hosts}: is it running, and is the address right?") from None
    return store
