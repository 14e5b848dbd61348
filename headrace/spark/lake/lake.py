"""A lake on the driver: its contents, and the only way to change them.

Owns the manifest folder, the writer's lock and the deletion of files. Called by the archive pipeline, which commits,
and by replay, status and reads of an archive, which only load. Invariant: a commit is one `put` of one numbered file,
so it is atomic; only the holder of the lock commits, so each number is used once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from headrace.model.failure import Failure
from headrace.spark.lake.manifest import (
    COMMITS_PER_SUM,
    Commit,
    Contents,
    LakeFile,
    commit_name,
    decode_commit,
    decode_sum,
    encode,
    is_sum,
    number_of,
    sum_name,
)
from headrace.spark.lake.storage import Storage, open_storage
from headrace.world.clock import Clock, SystemClock

MANIFEST = "manifest"
DATA = "data"


class Lake:
    def __init__(self, address: str, storage: Storage, clock: Clock) -> None:
        self.address = address
        self.storage = storage
        self._clock = clock
        self.contents = Contents()
        self._unlock: Callable[[], None] | None = None
        self._writing = threading.Lock()

    def load(self) -> Lake:
        """Read the manifest: the latest checkpoint file and the commits after it."""
        numbers: dict[int, str] = {}
        latest_sum = 0
        for name in self.storage.names(MANIFEST):
            number = number_of(name)
            if number is None:
                continue
            if is_sum(name):
                latest_sum = max(latest_sum, number)
            else:
                numbers[number] = name
        self.contents = Contents(files={}, removed={})
        if latest_sum:
            name = f"{MANIFEST}/{sum_name(latest_sum)}"
            self.contents = decode_sum(self.storage.read(name), self.storage.uri(name))
        for number in sorted(number for number in numbers if number > latest_sum):
            self.contents.apply(self.read_commit(number))
        return self

    def read_commit(self, number: int) -> Commit:
        name = f"{MANIFEST}/{commit_name(number)}"
        return decode_commit(self.storage.read(name), self.storage.uri(name))

    def take(self) -> Lake:
        """Take the writer's lock, then load the manifest."""
        self._unlock = self.storage.lock()
        if self._unlock is None:
            raise Failure(f"another archive pipeline writes to the lake {self.address}: stop it, or use another lake")
        return self.load()

    def release(self) -> None:
        """Release the lock. A stopped batch may still be running in another thread: its commit is then rejected."""
        with self._writing:
            if self._unlock is not None:
                self._unlock()
                self._unlock = None

    def commit(self, run: str, added: Iterable[LakeFile], removed: Iterable[LakeFile] = ()) -> Commit:
        """Add and remove files; effective once the commit file is written."""
        with self._writing:
            if self._unlock is None:
                raise RuntimeError(
                    f"a commit to the lake {self.address} needs its lock, and this process has released it"
                )
            commit = Commit(self.contents.number + 1, self._clock.now_ms(), run, tuple(added), tuple(removed))
            self.storage.put(f"{MANIFEST}/{commit_name(commit.number)}", encode(commit))
            self.contents.apply(commit)
            if commit.number % COMMITS_PER_SUM == 0:
                self.storage.put(f"{MANIFEST}/{sum_name(commit.number)}", encode(self.contents))
            return commit

    def sweep(self) -> int:
        """Delete files that no commit names: those of batches that were never committed."""
        known = self.contents.files.keys() | self.contents.removed.keys()
        strangers = [name for name in self._data_files() if name not in known]
        for name in strangers:
            self.storage.remove(name)
        return len(strangers)

    def delete_replaced(self, keep_ms: int) -> int:
        """Delete files that a compaction replaced at least `keep_ms` ago; earlier readers are assumed to have ended."""
        until_ms = self._clock.now_ms() - keep_ms
        old = [name for name, replaced_ms in self.contents.removed.items() if replaced_ms <= until_ms]
        for name in old:
            self.storage.remove(name)
        self.contents.forget(old)
        return len(old)

    def _data_files(self) -> list[str]:
        return [
            f"{DATA}/{topic}/{hour}/{name}"
            for topic in self.storage.names(DATA)
            for hour in self.storage.names(f"{DATA}/{topic}")
            for name in self.storage.names(f"{DATA}/{topic}/{hour}")
        ]


def open_lake(address: str) -> Lake:
    """The lake at an address, not loaded yet."""
    return Lake(address, open_storage(address), SystemClock())


def load_lake(address: str) -> Lake:
    """The loaded lake at an address, for reading; Failure if there is none."""
    lake = open_lake(address).load()
    if lake.contents.number == 0:
        raise Failure(f"there is no lake at {address}: run the archive pipeline first, or correct the path")
    return lake
