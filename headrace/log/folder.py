"""The data folder itself: whose it is, that only one process uses it, and whether it was left in order.

File `headrace.meta`, text: `headrace-data 1`, then `cluster_id ID`, `broker_id N` and `disk_id ID`. Replaced whole,
written once: an empty disk in the place of this one has another `disk_id`. Folders of earlier versions have none.
File `headrace.lock` is locked while a broker runs; the lock dies with the process.
File `clean-stop` is there from a clean stop to the next start; it holds the first line of headrace.meta and, if the
broker knew it, `broker_epoch N`: of everything that it had under that epoch nothing is missing here.
Partition folders stand beside these files; their names end in a dash and a number, which no other name here does.

Called where the broker is built. A folder of another broker, cluster or version is refused before anything in it is
touched, in one line for the person who started the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.model.failure import Failure, other_version
from headrace.world.disk import Disk

META = "headrace.meta"
LOCK = "headrace.lock"
CLEAN_STOP = "clean-stop"
_FIRST_LINE = "headrace-data 1"


class DataFolder:
    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self.was_clean = False
        """Whether the last broker that used the folder stopped cleanly; True for a new folder. Set by `open`."""
        self.clean_epoch: int | None = None
        """The broker epoch that ended with that clean stop; None where it is not known. Set by `open`."""
        self.claimed = False
        """Whether it belongs to a broker already. Set by `open`."""
        self.disk_id = ""
        """Tells this disk from another one in its place. Set by `claim`."""
        self._disk = disk
        self._release: Callable[[], None] | None = None

    def open(self) -> None:
        """Take the folder for this process, or raise Failure; a folder that is not there is made."""
        self._take_lock()
        try:
            known = self._read_meta()
            self.claimed = known is not None
            self.was_clean = known is None or self._disk.exists(self.path / CLEAN_STOP)
            if self.was_clean and known is not None:
                self.clean_epoch = self._read_clean_epoch()
        except BaseException:
            self.close()
            raise

    def claim(self, cluster_id: str, broker_id: int, disk_id: str) -> None:
        """See that the folder is this broker's, or raise Failure; a new folder becomes its own, with this id. From then
        on it may be changed, and is no longer as a clean stop left it."""
        known = self._read_meta()
        if known is None:
            text = f"{_FIRST_LINE}\ncluster_id {cluster_id}\nbroker_id {broker_id}\ndisk_id {disk_id}\n"
            self._disk.write_atomic(self.path / META, text.encode())
            self.disk_id = disk_id
            return
        self.disk_id = known.get("disk_id", "")
        if known["broker_id"] != str(broker_id):
            raise Failure(
                f"the data folder {self.path} belongs to broker {known['broker_id']}, not {broker_id}; choose another"
            )
        if known["cluster_id"] != cluster_id:
            raise Failure(
                f"the data folder {self.path} belongs to cluster {known['cluster_id']}, not {cluster_id}; choose "
                f"another, or bring a broker that stood alone into a cluster with `headrace cluster adopt`"
            )
        if self._disk.exists(self.path / CLEAN_STOP):
            self._disk.remove(self.path / CLEAN_STOP)
            self._disk.sync_dir(self.path)

    def close(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None

    def _take_lock(self) -> None:
        try:
            new = [folder for folder in (self.path, *self.path.parents) if not self._disk.exists(folder)]
            self._disk.make_dirs(self.path)
            for folder in new:  # what is synced inside is of no use if a power cut takes the folder's own name
                self._disk.sync_dir(folder.parent)
            self._release = self._disk.lock(self.path / LOCK)
        except OSError as error:
            raise Failure(f"cannot use the data folder {self.path}: {error.strerror}; choose another one") from error
        if self._release is None:
            raise Failure(f"the data folder {self.path} is in use by another broker; stop that one or choose another")

    def _read_clean_epoch(self) -> int | None:
        for line in self._disk.read_bytes(self.path / CLEAN_STOP).decode("utf-8", "replace").splitlines()[1:]:
            name, _, value = line.partition(" ")
            if name == "broker_epoch" and value.isdecimal():
                return int(value)
        return None

    def _read_meta(self) -> dict[str, str] | None:
        path = self.path / META
        try:
            lines = self._disk.read_bytes(path).decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return None
        if not lines or not lines[0].startswith("headrace-data "):
            raise Failure(f"{path} is not a file of headrace; choose another data folder")
        if lines[0] != _FIRST_LINE:
            raise other_version(path, lines[0].split(" ", 1)[1], 1)
        fields = dict(line.split(" ", 1) for line in lines[1:] if " " in line)
        if "cluster_id" not in fields or "broker_id" not in fields:
            raise Failure(f"{path} is damaged: no cluster_id or no broker_id; restore it from a backup")
        return fields


def mark_clean(disk: Disk, path: Path, broker_epoch: int | None = None) -> None:
    """Everything is on disk: the last act of a clean stop."""
    epoch = "" if broker_epoch is None else f"broker_epoch {broker_epoch}\n"
    disk.write_atomic(path / CLEAN_STOP, f"{_FIRST_LINE}\n{epoch}".encode())
