"""Threads for work that would block the event loop: the disk has some, and computing has one of its own.

Work that only computes (decompression, decoding a huge request) runs one piece at a time, in the order of the calls:
it competes with the event loop for the interpreter, so a second piece beside it would only make the loop wait longer.
It has a thread of its own so that nobody who waits for the disk waits for it.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Computing(Protocol):
    async def off_loop(self, work: Callable[..., T], *args: object) -> T:
        """Run work that only computes without blocking the event loop. It must not touch what the loop changes. What
        has begun goes on to its end, even if nobody waits for it any more."""
        ...


class Threads:
    """A fixed number of threads, started together at the first use."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._unstarted = count

    async def off_loop(self, work: Callable[..., T], *args: object) -> T:
        if self._unstarted:
            self._start()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def _start(self) -> None:
        """All of them at once. A pool that starts its threads one by one raises an error for work that it carries out
        all the same, if the system refuses it another thread later."""
        count, self._unstarted = self._unstarted, 0
        together = threading.Barrier(count)  # so that none of them is idle before the last has started
        try:
            for _ in range(count):
                self._pool.submit(together.wait)
        except RuntimeError as error:
            together.abort()
            raise OSError(errno.EAGAIN, f"the system gives this process no more threads ({error})") from error

    def close(self) -> None:
        self._pool.shutdown()


def computing_thread() -> Threads:
    return Threads(1, "headrace-computing")


def scanning_thread() -> Threads:
    """For views, which read and open what they search: others that compute do not wait for them."""
    return Threads(1, "headrace-scanning")
