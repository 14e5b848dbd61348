"""Full garbage collections wait while something large is being made.

A full collection looks at every object in one go, and Python starts one whenever there are a quarter more objects than
at the last one. A request of 250,000 items caused a dozen of them, the longest of 165 ms, and none found any garbage.
The smaller collections, which look at new objects alone, go on.

Called by long_work.py, whose turns end soon. Invariant: when nobody postpones them, collections are as they were
before.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NEVER = 2**31 - 1


class FullCollections:
    """Those of a process: there is one object of this class."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # several brokers of one process have threads of their own
        self._postponing = 0
        self._before = (0, 0, 0)

    @contextmanager
    def postponed(self) -> Iterator[None]:
        with self._lock:
            if not self._postponing:
                self._before = gc.get_threshold()
                gc.set_threshold(*self._before[:2], _NEVER)
            self._postponing += 1
        try:
            yield
        finally:
            with self._lock:
                self._postponing -= 1
                if not self._postponing:
                    gc.set_threshold(*self._before)


full_collections = FullCollections()
