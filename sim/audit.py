"""The auditor of a simulated cluster: it checks every write to ZooKeeper and every replica's log.

There are two kinds of audit. While the cluster runs, each partition state that is written must follow from the previous
one (`StateAudit`). After all faults are removed, all replicas of a partition must hold the same batches with increasing
leader epochs (`compare_replicas`, which also reports every batch to the recorder, for the checks of the log). Called by
sim/story.py. Violations are sentences.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from headrace.cluster import znodes
from headrace.cluster.tree import Edit
from headrace.cluster.znodes import PartitionState
from headrace.wire.batches import crc_ok, walk
from headrace.wire.end_markers import read_marker
from headrace.wire.records import decode
from sim.disk import SimDisk
from sim.history.recorder import Recorder

NO_LEADER = -1


class StateAudit:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self.elections = 0
        self._offices: dict[str, int] = {}  # the newest controller epoch that wrote each state

    def __call__(self, edits: list[Edit]) -> None:
        for edit in edits:
            if edit.after is None:
                continue
            if edit.path.startswith(znodes.PARTITIONS + "/") and edit.path.count("/") == 3:
                before = None if edit.before is None else znodes.decode_partition(edit.path, edit.before.data)
                self._look(edit.path, before, znodes.decode_partition(edit.path, edit.after.data))

    def _look(self, path: str, before: PartitionState | None, after: PartitionState) -> None:
        isr = [broker for broker, _ in after.isr]
        if not set(isr) <= set(after.replicas):
            self._wrong(path, f"the ISR {isr} is not among the replicas {after.replicas}")
        if len(set(isr)) != len(isr):
            self._wrong(path, f"the ISR {isr} names somebody twice")
        lays_down = before is not None and (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch)
        if after.leader != NO_LEADER and after.leader not in isr and not lays_down:  # else its disk failed
            self._wrong(path, f"the leader {after.leader} is not in the ISR {isr}")
        if before is None:
            return
        if after.leader_epoch < before.leader_epoch:
            self._wrong(path, f"the leader epoch fell from {before.leader_epoch} to {after.leader_epoch}")
        newest = self._offices.get(path, -1)
        if 0 <= after.controller_epoch < newest:  # a leader that changes its ISR writes no controller epoch
            self._wrong(path, f"a controller of epoch {after.controller_epoch} wrote after one of {newest}")
        self._offices[path] = max(newest, after.controller_epoch)
        if after.leader not in (before.leader, NO_LEADER):
            self.elections += 1
            eligible = {broker for broker, _ in (*before.isr, *before.elr)}
            if after.leader_epoch <= before.leader_epoch:
                self._wrong(path, f"broker {after.leader} leads in epoch {after.leader_epoch}, which was another's")
            longest = before.leader == NO_LEADER and not before.isr and bool(before.last_known)
            if after.leader not in eligible and not after.recovering and not longest:
                self._wrong(path, f"broker {after.leader} leads, and only {sorted(eligible)} may")

    def _wrong(self, path: str, sentence: str) -> None:
        self.violations.append(f"{path}: {sentence}")


def compare_replicas(
    disks: Mapping[int, SimDisk],
    data: Path,
    topics: Mapping[str, list[tuple[int, ...]]],
    recorder: Recorder,
    trimmed: Collection[str] = (),
) -> list[str]:
    """Checks that all replicas of each partition (by topic and number) hold the same batches; returns differences. The
    logs of `trimmed` topics have lost their first segments, not all of them the same ones."""
    wrong: list[str] = []
    for topic, partitions in topics.items():
        for index, replicas in enumerate(partitions):
            tp = f"{topic}-{index}"
            logs = {broker: _batches(disks[broker], data / tp) for broker in sorted(replicas)}
            for broker, batches in logs.items():
                start = int(str(batches[0]["base"])) if topic in trimmed and batches else 0
                wrong += [f"{tp} on broker {broker}: {problem}" for problem in _lineage(batches, start)]
                for batch in batches:
                    recorder.happened("scan", "batch", tp=tp, details=batch | {"replica": broker})
            if topic in trimmed:
                start = max((int(str(batches[0]["base"])) for batches in logs.values() if batches), default=0)
                logs = {broker: [b for b in logs[broker] if int(str(b["base"])) >= start] for broker in logs}
            wrong += _differences(tp, logs)
    return wrong


def _batches(disk: SimDisk, folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    if not disk.exists(folder):
        return found  # nothing was ever written
    for name in sorted(name for name in disk.list_dir(folder) if name.endswith(".log")):
        data = disk.read_bytes(folder / name)
        for at, header in walk(data):
            batch: dict[str, object] = {
                "base": header.base_offset,
                "last": header.last_offset,
                "pid": header.producer_id,
                "epoch": header.producer_epoch,
                "seq": header.base_sequence,
                "txn": header.is_transactional,
                "crc": header.crc if crc_ok(data, at, header) else -1,
                "leader": header.leader_epoch,
            }
            if header.record_count <= header.last_offset_delta or header.is_note:  # some offsets have no record
                batch["offs"] = [] if header.is_note else [record.offset for record in decode(data, at)]
            if header.is_control and not header.is_note:
                marker = read_marker(data, at)
                batch["control"] = "commit" if marker is not None and marker.commit else "abort"
            found.append(batch)
    return found


def _lineage(batches: list[dict[str, object]], start: int) -> list[str]:
    wrong = []
    after, epoch = start, -1
    for batch in batches:
        base, leader = int(str(batch["base"])), int(str(batch["leader"]))
        if base != after:
            wrong.append(f"offset {base} follows {after - 1}")
        if leader < epoch:
            wrong.append(f"leader epoch {leader} follows {epoch} at offset {base}")
        if batch["crc"] == -1:
            wrong.append(f"the batch at offset {base} does not match its CRC")
        after, epoch = int(str(batch["last"])) + 1, leader
    return wrong


def _differences(tp: str, logs: Mapping[int, list[dict[str, object]]]) -> list[str]:
    brokers = sorted(logs)
    for broker in brokers[1:]:
        if logs[broker] != logs[brokers[0]]:
            pairs = zip(logs[brokers[0]], logs[broker], strict=False)
            first = next((f"{one} and {other}" for one, other in pairs if one != other), "one is shorter")
            sizes = f"{len(logs[brokers[0]])} and {len(logs[broker])} batches"
            return [f"{tp} differs on brokers {brokers[0]} and {broker} ({sizes}): {first}"]
    return []
