"""A broker in a thread of the test process.

Owned by the fixtures of plugin.py; also a plain context manager for tests without pytest. Every start makes a new event
loop in a new thread, so nothing of a killed broker stays in memory; only the data folder, the port and the advanced
clock survive a restart.

Invariant: the broker, its world and its clock are used on the broker's thread only; this class submits coroutines to
that thread and waits for their results.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from headrace.model.broker_config import BrokerConfig, broker_config
from headrace.model.settings import LONG_MAX
from headrace.server.broker import Broker
from headrace.testing.broker_clock import BrokerClock
from headrace.testing.quiet_loop import QuietLoop
from headrace.world.clock import AdvanceableClock
from headrace.world.disk import RealDisk
from headrace.world.entropy import SystemEntropy
from headrace.world.net import RealNet
from headrace.world.threads import computing_thread, scanning_thread
from headrace.world.world import World

T = TypeVar("T")

HOST = "127.0.0.1"
# When its clock is advanced, clients look idle to the broker; it must not close their connections for that.
SETTINGS = {"connections.max.idle.ms": str(LONG_MAX)}
PATIENCE_S = 30.0  # after this the broker is considered stuck, and the test fails instead of hanging


class _BrokerRun:
    """One run of the broker, from start to stop or kill. Everything here happens on its own thread."""

    def __init__(self, loop: QuietLoop, data: Path, config: BrokerConfig, port: int, shift_s: float) -> None:
        self.loop = loop
        self._data = data
        self._config = config
        self._port = port
        self._shift_s = shift_s
        self.clock = AdvanceableClock()
        self.ready: Future[int] = Future()  # its result: the port
        self.over: Future[None] = Future()  # its exception: why the broker failed, if it did
        self._ending = asyncio.Event()
        self._clean = True

    def run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._live())
        except BaseException as error:
            if not self.ready.done():
                self.ready.set_exception(error)
            self.over.set_exception(error)
        else:
            self.over.set_result(None)

    async def _live(self) -> None:
        self.clock.advance(self._shift_s)
        disk, computing, scanning = RealDisk(), computing_thread(), scanning_thread()
        try:
            world = World(self.clock, disk, RealNet(), SystemEntropy(), computing, scanning)
            broker = Broker(world, self._config, self._data, (HOST, self._port))
            await broker.start()
            self.ready.set_result(broker.address[1])
            failed = asyncio.ensure_future(broker.failed())
            ending = asyncio.ensure_future(self._ending.wait())
            await asyncio.wait({failed, ending}, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                await broker.stop(clean=False)
                failed.result()
            failed.cancel()
            await broker.stop(clean=self._clean)
        finally:
            disk.close()
            computing.close()
            scanning.close()

    async def push(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if not await self.loop.rest(lambda: self.clock.advance(0), PATIENCE_S / 2):
            raise TimeoutError(
                f"after its clock was advanced by {seconds:g} s the broker did not become idle within "
                f"{PATIENCE_S / 2:g} s: do clients keep it busy?"
            )

    async def now_ms(self) -> int:
        return self.clock.now_ms()

    async def end(self, clean: bool) -> None:
        self._clean = clean
        self._ending.set()


class LocalBroker:
    """A real broker on 127.0.0.1, in this process.

    with LocalBroker(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
    """

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.port = 0
        self.clock = BrokerClock(self._push, self._now_ms)
        self._settings = SETTINGS | dict(settings or {})
        self._shift_s = 0.0
        self._run: _BrokerRun | None = None
        self._thread: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start on the same port as before, at first on a free one; returns when the broker accepts requests."""
        if self._run is not None:
            raise RuntimeError("the broker is running already: stop() or kill() it first, or use restart()")
        run = _BrokerRun(QuietLoop(), self.data, broker_config(self._settings), self.port, self._shift_s)
        thread = threading.Thread(target=run.run, name=f"headrace-broker-{self.data.name}", daemon=True)
        thread.start()
        self.port = run.ready.result(PATIENCE_S)
        self._run, self._thread = run, thread

    def stop(self) -> None:
        """Stop as on SIGTERM: everything is flushed, connections are closed. `start()` starts it again."""
        self._end(clean=True)

    def kill(self) -> None:
        """Stop as on SIGKILL: nothing is finished, flushed or marked as clean. `restart()` then runs recovery."""
        self._end(clean=False)

    def restart(self) -> None:
        """Stop cleanly if it is running, and start again with the same port, data and clock."""
        self.stop()
        self.start()

    def __enter__(self) -> LocalBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, clean: bool) -> None:
        run, thread = self._run, self._thread
        if run is None or thread is None:
            return
        self._run = self._thread = None
        if not run.over.done():
            _on(run, run.end(clean))
        run.over.result(PATIENCE_S)
        thread.join(PATIENCE_S)

    def _running(self) -> _BrokerRun:
        if self._run is None:
            raise RuntimeError("the broker is not running: start() or restart() it first")
        return self._run

    def _push(self, seconds: float) -> None:
        run = self._running()
        self._shift_s += seconds
        _on(run, run.push(seconds))

    def _now_ms(self) -> int:
        run = self._running()
        return _on(run, run.now_ms())


def _on(run: _BrokerRun, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the broker's thread and wait for what it returns."""
    return asyncio.run_coroutine_threadsafe(work, run.loop).result(PATIENCE_S)
