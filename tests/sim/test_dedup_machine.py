"""Deduplication by id on a disk that crashes, held against a list of what was stored and when.

An id that was stored within the window keeps its record out, whatever happened in between; one that was not, or whose
transaction was aborted, cut off or lost with the power, never does. After a crash an id may count from the restart, so
there is a time in which both are right. HEADRACE_SOAK=1 runs many more examples.
"""

from __future__ import annotations

import os
import random
import uuid
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headrace.log import identity, recovery
from headrace.log.files import FilePool
from headrace.log.indexes import IndexShelf
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Shelf
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import NO_PRODUCER_ID, TRANSACTIONAL
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk

SOAK = os.environ.get("HEADRACE_SOAK") == "1"
FOLDER = Path("/data/orders-0")
WINDOW_MS = 10_000
CONFIG = TopicConfig(segment_bytes=1500, index_interval_bytes=200, dedup_window_ms=WINDOW_MS)
PRODUCERS = [1, 2]
IDS = [b"a", b"b", b"c", b"d"]


@dataclass
class Stored:
    """A record with an id that is in the log."""

    name: bytes
    offset: int
    producer: int
    earliest_ms: int
    latest_ms: int
    ended_at: int | None = None  # the offset of the marker, for one of a transaction
    committed: bool = False

    @property
    def counts(self) -> bool:
        return self.producer == NO_PRODUCER_ID or self.committed


class DedupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.now_ms = 1_000_000
        self.stored: list[Stored] = []
        self.batch_ends = [0]
        self.epochs: dict[int, int] = dict.fromkeys(PRODUCERS, 0)

    @initialize()
    def make(self) -> None:
        self.disk.make_dirs(FOLDER)
        self.disk.sync_dir(Path("/"))
        self.disk.sync_dir(FOLDER.parent)
        identity.save(self.disk, FOLDER, uuid.UUID(int=7))
        self.open()

    def open(self) -> None:
        shelf = Shelf(self.disk, FilePool(self.disk, capacity=3), IndexShelf(400))
        loaded = recovery.load(shelf, FOLDER, CONFIG, self.now_ms)
        self.shelf, self.log = shelf, PartitionLog(shelf, loaded, CONFIG, set(), self.now_ms)
        self.log.finish_truncation()
        assert self.log.offline is None

    # -- writing ------------------------------------------------------------------------------------------------------

    @rule(names=st.lists(st.sampled_from(IDS), min_size=1, max_size=3))
    def write(self, names: list[bytes]) -> None:
        self.append(names, NO_PRODUCER_ID)

    @rule(names=st.lists(st.sampled_from(IDS), min_size=1, max_size=3), producer=st.sampled_from(PRODUCERS))
    def write_inside(self, names: list[bytes], producer: int) -> None:
        self.append(names, producer)

    def append(self, names: list[bytes], producer: int) -> None:
        records = [Record(at, self.now_ms, b"k", name, (("headrace.id", name),)) for at, name in enumerate(names)]
        inside = producer != NO_PRODUCER_ID
        encoded = encode_batch(
            records,
            producer_id=producer,
            producer_epoch=self.epochs[producer] if inside else -1,
            base_sequence=self.next_sequence(producer) if inside else -1,
            attributes=TRANSACTIONAL if inside else 0,
        )
        base = self.log.append(memoryview(encoded), 0, now_ms=self.now_ms, transactional=inside).base_offset
        assert base == self.batch_ends[-1]
        there = {record.offset for record in self.read(base)}
        for at, name in enumerate(names):
            self.judge(name, producer, base + at in there)
            if base + at in there:
                self.stored.append(Stored(name, base + at, producer, self.now_ms, self.now_ms))
        self.batch_ends.append(base + len(names))

    def next_sequence(self, producer: int) -> int:
        known = self.log.producers.producers.get(producer)
        return known.batches[-1].last_sequence + 1 if known is not None and known.batches else 0

    def judge(self, name: bytes, producer: int, is_stored: bool) -> None:
        same = [entry for entry in self.stored if entry.name == name]
        mine = any(entry.producer == producer and entry.ended_at is None and not entry.counts for entry in same)
        counted = [entry for entry in same if entry.counts]
        surely = mine or any(self.now_ms - entry.earliest_ms < WINDOW_MS for entry in counted)
        perhaps = surely or any(self.now_ms - entry.latest_ms < WINDOW_MS for entry in counted)
        assert not (surely and is_stored), f"{name!r} was seen, and stored again"
        assert perhaps or is_stored, f"{name!r} was not seen, and not stored"

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans())
    def finish(self, producer: int, commit: bool) -> None:
        self.epochs[producer] += 1
        appended = self.log.append_marker(
            producer, self.epochs[producer], 0, commit, 0, strict=True, now_ms=self.now_ms
        )
        assert not appended.duplicate
        for entry in self.stored:
            if entry.producer == producer and entry.ended_at is None:
                entry.ended_at, entry.committed = appended.base_offset, commit
                entry.earliest_ms = entry.latest_ms = self.now_ms
        self.batch_ends.append(appended.base_offset + 1)

    def read(self, offset: int) -> list[Record]:
        return decode(self.log.read(offset, 1 << 20, self.log.end_offset, at_least_one=True).load())

    # -- time, shape and crashes --------------------------------------------------------------------------------------

    @rule(ms=st.integers(1, WINDOW_MS // 2))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(checkpoint=st.booleans())
    def sync(self, checkpoint: bool) -> None:
        self.log.sync(checkpoint=checkpoint)

    @rule(room=st.integers(0, 100))
    def sync_on_a_full_disk(self, room: int) -> None:
        """The ids are written later."""
        self.disk.room_bytes = room
        try:
            self.log.sync()
        except OSError:
            pass
        finally:
            self.disk.room_bytes = None

    @precondition(lambda self: len(self.batch_ends) > 1)
    @rule(choice=st.randoms(use_true_random=False))
    def truncate(self, choice: random.Random) -> None:
        end = choice.choice(self.batch_ends[:-1])
        self.log.truncate_to(end)
        self.forget_from(end)

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.open()

    @rule()
    def kill_and_start(self) -> None:
        self.shelf.files.close()
        self.open()
        self.forget_from(self.batch_ends[-1])

    @rule(choice=st.randoms(use_true_random=False))
    def crash(self, choice: random.Random) -> None:
        self.disk.crash(choice)
        self.open()
        self.forget_from(self.log.end_offset)

    def forget_from(self, end: int) -> None:
        """The log ends here now, and what it knows of ids may have been read from it just now."""
        self.batch_ends = [offset for offset in self.batch_ends if offset <= end]
        assert self.batch_ends[-1] == end
        self.stored = [entry for entry in self.stored if entry.offset < end]
        for entry in self.stored:
            entry.latest_ms = self.now_ms
            if entry.ended_at is not None and entry.ended_at >= end:
                entry.ended_at, entry.committed = None, False
        for producer in PRODUCERS:
            known = self.log.producers.producers.get(producer)
            self.epochs[producer] = 0 if known is None else known.epoch


DedupMachine.TestCase.settings = settings(
    max_examples=3000 if SOAK else 60,
    stateful_step_count=60 if SOAK else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
TestDedupMachine = DedupMachine.TestCase
