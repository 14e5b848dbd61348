"""The checkpoint folder of a pipeline: its owner, and the pipeline's status.

Owns two files in it, beside Spark's folder for each query: `pipeline.json` has the pipeline that created the checkpoint
and its shape; `status.json` has its status after the last batch, for `headrace pipeline status`. Invariant: a
checkpoint is only used by the pipeline that created it, with the same shape; to any other, its offsets and state would
mean something else.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.model.failure import Failure
from headrace.spark.lake.storage import Storage, open_storage

OWNER = "pipeline.json"
STATUS = "status.json"
SPARK_OWN = {"metadata", "offsets", "commits"}


class Status(msgspec.Struct, kw_only=True, frozen=True):
    """The status of a pipeline; `state` is what its last run wrote, and a killed run does not update it."""

    pipeline: str
    name: str
    state: Literal["running", "stopped", "failed", "finished"]
    at_ms: int
    rows: int = 0
    rows_per_s: float = 0.0
    lag: int | None = None
    batch: int = -1
    error: str = ""


class Checkpoint:
    def __init__(self, address: str, storage: Storage) -> None:
        self.address = address.rstrip("/")
        self._storage = storage

    def query(self, name: str) -> str:
        """Spark's folder for one query of the pipeline."""
        return f"{self.address}/{name}"

    def claim(self, shape: dict[str, Any]) -> bool:
        """Make this pipeline the owner, or check that it is; true if the checkpoint is new.

        `shape` is the part of the configuration that must not change while the checkpoint is used.
        """
        names = self._storage.names("")
        if OWNER not in names:
            if SPARK_OWN & set(names):
                raise Failure(
                    f"the checkpoint {self.address} was made by another query, not by a pipeline of headrace: "
                    "choose another folder"
                )
            self._storage.put(OWNER, msgspec.json.encode(shape))
            return True
        made = self._read(OWNER)
        plain = msgspec.to_builtins(shape)
        changed = [key for key in {**made, **plain} if made.get(key) != plain.get(key)]
        if changed:
            told = "; ".join(f"{key} was {made.get(key)!r} and is {plain.get(key)!r}" for key in changed)
            raise Failure(
                f"the checkpoint {self.address} belongs to another query: {told}. Choose another checkpoint, "
                "or undo the change"
            )
        return False

    def save(self, name: str, document: Any) -> None:
        self._storage.put(name, msgspec.json.encode(document))

    def load(self, name: str) -> Any | None:
        return self._read(name) if name in self._storage.names("") else None

    def write_status(self, status: Status) -> None:
        self._storage.put(STATUS, msgspec.json.encode(status))

    def status(self) -> Status | None:
        if STATUS not in self._storage.names(""):
            return None
        return msgspec.json.decode(self._storage.read(STATUS), type=Status)

    def _read(self, name: str) -> Any:
        try:
            return msgspec.json.decode(self._storage.read(name))
        except msgspec.DecodeError:
            raise Failure(f"{self._storage.uri(name)} is corrupt: choose another checkpoint, or restore it") from None


def open_checkpoint(address: str) -> Checkpoint:
    return Checkpoint(address, open_storage(address))
