"""`headrace serve`: one broker in this process until SIGINT or SIGTERM, then a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
from pathlib import Path

import uvloop
from msgspec import Struct
from msgspec.structs import replace

from headrace.cluster.sessions import OpenStore
from headrace.cluster.store import Store
from headrace.model.broker_config import BrokerConfig, load_broker_config
from headrace.model.failure import Failure
from headrace.model.settings import INT_MAX
from headrace.server.broker import Broker
from headrace.world.world import World, real_world

logger = logging.getLogger("headrace")


class ServeOptions(Struct, frozen=True):
    data: Path
    listen: tuple[str, int]
    advertise: tuple[str, int] | None = None
    config: Path | None = None
    metrics: tuple[str, int] | None = None
    zookeeper: str | None = None
    broker_id: int | None = None
    rack: str | None = None
    host_name: str | None = None  # of this machine: the default rack of a broker in a cluster


def run(options: ServeOptions) -> int:
    """Runs until it is stopped; returns the exit status. Raises Failure for errors that the user can fix."""
    gc.freeze()  # modules live as long as the process, so the garbage collector can skip them
    gc.enable()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    world = real_world()
    config = BrokerConfig() if options.config is None else load_broker_config(options.config, world.disk)
    config = _with_options(config, options)
    open_files = _allow_many_files()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(world, options, config, open_files))
    except OSError as error:  # usually a full or broken disk
        where = f" ({error.filename})" if error.filename else ""
        raise Failure(f"the broker with its data in {options.data} stopped: {error.strerror}{where}") from error
    return 0


async def _serve(world: World, options: ServeOptions, config: BrokerConfig, open_files: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(
        world,
        config,
        options.data,
        options.listen,
        advertise=options.advertise,
        metrics=options.metrics,
        open_store=_store_of_cluster(config, world),
        watchful=True,
        open_files=open_files,
    )
    starting = asyncio.ensure_future(broker.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # start-up waits for ZooKeeper as long as that is unavailable
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        logger.info("stopped before the broker was ready")
        return
    starting.result()
    gc.collect()
    gc.freeze()  # so do the objects that start-up created
    host, port = broker.address
    logger.info("headrace is ready on %s:%d, data in %s", host, port, options.data)
    if broker.metrics_port is not None and options.metrics is not None:
        logger.info("metrics at http://%s:%d/metrics", options.metrics[0], broker.metrics_port)
    failed = asyncio.ensure_future(broker.failed())
    await asyncio.wait({failed, stopping}, return_when=asyncio.FIRST_COMPLETED)
    error = failed.exception() if failed.done() else None
    if error is None:
        logger.info("stopping")
    else:
        logger.error("stopping, because a component of the broker failed: %s", error)
    failed.cancel()
    stopping.cancel()
    await broker.stop()
    if error is not None:
        raise error
    logger.info("stopped cleanly")


def _with_options(config: BrokerConfig, options: ServeOptions) -> BrokerConfig:
    """Options of the command line override the file."""
    if options.zookeeper is not None:
        config = replace(config, zookeeper_connect=options.zookeeper)
    if options.broker_id is not None:
        config = replace(config, broker_id=options.broker_id)
    rack = options.rack or config.rack
    if rack is None and config.zookeeper_connect is not None:
        rack = options.host_name
    return replace(config, rack=rack)


def _store_of_cluster(config: BrokerConfig, world: World) -> OpenStore | None:
    hosts = config.zookeeper_connect
    if hosts is None:
        return None

    from headrace.cluster.zookeeper import ZooKeeperStore  # a single broker never loads kazoo

    async def open_store() -> Store:
        store = ZooKeeperStore(hosts, config.zookeeper_session_timeout_ms / 1000, world.clock)
        await store.open()
        return store

    return open_store


def _allow_many_files() -> int:
    """Raise the limit of open files (sockets and segments) to the hard limit; returns the limit in force."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if soft == resource.RLIM_INFINITY else soft
