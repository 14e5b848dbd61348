"""A log on a disk that crashes, held against a plain list.

Hypothesis appends, reads, rolls, syncs, truncates, trims, compacts, fills the disk, breaks its syncs and cuts the
power, in any order. After each step the log must hold what the list holds: after a power cut a prefix of it, cut
between two batches, with everything that had been synced. Compaction may be interrupted, so a record that it was about
to drop may be there or not. HEADRACE_SOAK=1 runs many more examples.
"""

from __future__ import annotations

import errno
import os
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.log import checkpoint as checkpoints
from headrace.log import identity, recovery
from headrace.log.compaction import Compactor
from headrace.log.files import FilePool
from headrace.log.indexes import IndexShelf
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Shelf
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import read_header, stamp
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk

SOAK = os.environ.get("HEADRACE_SOAK") == "1"
FOLDER = Path("/data/orders-0")
CONFIG = TopicConfig(
    cleanup_policy=("compact", "delete"), segment_bytes=1500, index_interval_bytes=200, retention_ms=50_000,
    file_delete_delay_ms=1000, delete_retention_ms=20_000,
)  # fmt: skip
KEYS = [b"a", b"b", b"c", b"d"]
PRODUCERS = [1, 2]


@dataclass
class Batch:
    """What was appended at once, as the test remembers it."""

    base: int
    records: list[Record]
    epoch: int
    after: int  # where the log ended before
    producer_id: int = -1
    sequence: int = -1
    gone: set[int] = field(default_factory=set)  # offsets that compaction has dropped
    maybe_gone: set[int] = field(default_factory=set)  # offsets that it may have dropped before a crash

    @property
    def end(self) -> int:
        return self.base + len(self.records)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.value = 0
        self.rebuilt = False  # producer state may know less than the last five batches

    @initialize()
    def make(self) -> None:
        self.disk.make_dirs(FOLDER)
        self.disk.sync_dir(Path("/"))
        self.disk.sync_dir(FOLDER.parent)
        identity.save(self.disk, FOLDER, uuid.UUID(int=7))
        self.open()

    def open(self) -> None:
        self.shelf = Shelf(self.disk, FilePool(self.disk, capacity=3), IndexShelf(400))
        self.unsynced: set[PartitionLog] = set()
        loaded = recovery.load(self.shelf, FOLDER, CONFIG, self.now_ms)
        self.log = PartitionLog(self.shelf, loaded, CONFIG, self.unsynced, self.now_ms)
        assert self.log.missing == ()  # nothing that a crash or the log itself does looks like damage
        self.log.finish_truncation()

    # -- appending ----------------------------------------------------------------------------------------------------

    def records(self, keys: list[bytes], tombstone: bool) -> list[Record]:
        made = []
        for at, key in enumerate(keys):
            self.value += 1
            value = None if tombstone and at == 0 else b"%d" % self.value * (1 + self.value % 9)
            made.append(Record(at, self.now_ms + at, key, value))
        return made

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), tombstone=st.booleans())
    def append(self, keys: list[bytes], tombstone: bool) -> None:
        self.write(self.records(keys, tombstone))

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), producer=st.sampled_from(PRODUCERS))
    def append_idempotent(self, keys: list[bytes], producer: int) -> None:
        mine = [batch for batch in self.batches if batch.producer_id == producer]
        sequence = mine[-1].sequence + len(mine[-1].records) if mine else 0
        self.write(self.records(keys, False), producer, sequence)

    def write(self, records: list[Record], producer: int = -1, sequence: int = -1) -> None:
        encoded = encode_batch(
            records, producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence
        )
        appended = self.log.append(memoryview(encoded), self.epoch, now_ms=self.now_ms)
        assert (appended.base_offset, appended.duplicate) == (self.end, False)
        stored = [record._replace(offset=self.end + at) for at, record in enumerate(records)]
        self.batches.append(Batch(self.end, stored, self.epoch, self.end, producer, sequence))
        self.end += len(records)

    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(1, 5))
    def retry(self, producer: int, back: int) -> None:
        """A batch that is sent again is answered with its first offset, and is not stored twice."""
        mine = [batch for batch in self.batches if batch.producer_id == producer]
        known = 1 if self.rebuilt else 5
        if not mine or back > min(len(mine), known) or mine[-back].base < self.start:
            return
        batch = mine[-back]
        plain = [record._replace(offset=at) for at, record in enumerate(batch.records)]
        encoded = encode_batch(plain, producer_id=producer, producer_epoch=0, base_sequence=batch.sequence)
        appended = self.log.append(memoryview(encoded), self.epoch, now_ms=self.now_ms)
        assert appended.duplicate
        assert (appended.base_offset, appended.last_offset) == (batch.base, batch.end - 1)

    @rule(producer=st.sampled_from(PRODUCERS))
    def skip_a_sequence(self, producer: int) -> None:
        mine = [batch for batch in self.batches if batch.producer_id == producer]
        if not mine or mine[-1].base < self.start:
            return
        sequence = mine[-1].sequence + len(mine[-1].records) + 1
        encoded = encode_batch(self.records(KEYS[:1], False), producer_id=producer, producer_epoch=0,
                               base_sequence=sequence)  # fmt: skip
        with pytest.raises(KafkaError) as refused:
            self.log.append(memoryview(encoded), self.epoch, now_ms=self.now_ms)
        assert refused.value.code is ErrorCode.out_of_order_sequence_number

    @rule(room=st.integers(0, 400))
    def append_to_a_full_disk(self, room: int) -> None:
        with self.full_disk(room):
            self.write(self.records(KEYS[:3], False))
        assert self.log.offline is None

    @contextmanager
    def full_disk(self, room: int) -> Iterator[None]:
        """Within the block there are only `room` bytes, and whatever needs more fails as it should."""
        self.disk.room_bytes = room
        try:
            yield
        except KafkaError as error:
            if error.code is not ErrorCode.kafka_storage_error:
                raise
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        finally:
            self.disk.room_bytes = None

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), gap=st.integers(0, 3))
    def append_as_follower(self, keys: list[bytes], gap: int) -> None:
        """What a leader sends, in whose log compaction may have left gaps."""
        base = self.end + gap
        records = [record._replace(offset=base + at) for at, record in enumerate(self.records(keys, False))]
        encoded = memoryview(encode_batch([record._replace(offset=at) for at, record in enumerate(records)]))
        stamp(encoded, 0, base, read_header(encoded).length, self.epoch)
        self.log.append_as_follower(encoded, self.now_ms)
        self.batches.append(Batch(base, records, self.epoch, self.end))
        self.end = base + len(records)

    @rule(room=st.integers(0, 300), work=st.sampled_from(["sync", "checkpoint", "roll", "compact", "retain", "delete"]))
    def work_on_a_full_disk(self, room: int, work: str) -> None:
        """What does not fit is not done, or not whole; but nothing is lost, and the log goes on."""
        before = self.start
        droppable = self.droppable(self.log.segments[-1].base_offset)
        with self.full_disk(room):
            if work in ("sync", "checkpoint"):
                self.log.sync(checkpoint=work == "checkpoint")
            elif work == "roll":
                self.log.roll(self.now_ms)
            elif work == "compact":
                for batch in self.batches:
                    batch.maybe_gone |= droppable & {record.offset for record in batch.records}
                self.rebuilt = True
                Compactor(self.shelf, step_bytes=700).compact(self.log, self.now_ms)
            elif work == "retain":
                self.log.apply_retention(self.now_ms)
            else:
                self.log.advance_start((self.start + self.end) // 2)
        assert self.log.offline is None
        self.start = self.log.start_offset
        assert self.start >= before if work in ("retain", "delete") else self.start == before

    @rule()
    def raise_epoch(self) -> None:
        self.epoch += 1

    # -- time and shape -----------------------------------------------------------------------------------------------

    @rule(ms=st.integers(1, 20_000))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(cold=st.booleans())
    def cache(self, cold: bool) -> None:
        self.disk.cold = cold

    @rule(checkpoint=st.booleans())
    def sync(self, checkpoint: bool) -> None:
        self.log.sync(checkpoint=checkpoint)
        assert self.log.synced_offset == self.log.end_offset

    @rule()
    def retain(self) -> None:
        before = self.start
        self.log.apply_retention(self.now_ms)
        self.start = self.log.start_offset
        assert self.start >= before
        dropped = [r for b in self.batches for r in b.records if before <= r.offset < self.start]
        assert all(record.timestamp < self.now_ms - CONFIG.retention_ms for record in dropped)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.start + int((self.end - self.start) * part)
        self.log.advance_start(offset)
        self.start = max(self.start, offset)

    @precondition(lambda self: self.batches)
    @rule(choice=st.randoms(use_true_random=False))
    def truncate(self, choice: random.Random) -> None:
        cut = choice.choice(self.batches)
        offset = choice.randint(cut.base, cut.end - 1)
        if offset < self.start:
            return
        if any(batch.gone or batch.maybe_gone for batch in self.batches):
            return  # replicas truncate what is not committed, and compact only what is
        self.log.truncate_to(offset)
        assert self.log.end_offset == cut.after
        self.forget_from(cut.after)
        self.rebuilt = True

    @rule(gap=st.integers(0, 50))
    def restart(self, gap: int) -> None:
        self.log.restart_at(self.end + gap)
        self.forget_all(self.end + gap)

    @precondition(lambda self: self.batches and not any(batch.gone or batch.maybe_gone for batch in self.batches))
    @rule(room=st.integers(0, 300), choice=st.randoms(use_true_random=False), restarts=st.booleans())
    def cut_on_a_full_disk(self, room: int, choice: random.Random, restarts: bool) -> None:
        """It is done, or it is not, or the log is offline; and then the next start decides."""
        cut = choice.choice(self.batches)
        if cut.base < self.start:
            return
        end = self.end + 1 if restarts else cut.after
        with self.full_disk(room):
            if restarts:
                self.log.restart_at(end)
            else:
                self.log.truncate_to(cut.base)
        self.rebuilt = True
        if self.log.offline is not None:
            self.shelf.files.close()
            self.open()
        if self.log.end_offset == end and restarts:
            self.forget_all(end)
        elif self.log.end_offset == end:
            self.forget_from(end)

    def forget_all(self, start: int) -> None:
        self.batches.clear()
        self.start = self.end = start

    def forget_from(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self.end = end
        self.start = min(self.start, end)

    # -- compaction ---------------------------------------------------------------------------------------------------

    @rule(crash_after=st.none() | st.integers(0, 12), choice=st.randoms(use_true_random=False))
    def compact(self, crash_after: int | None, choice: random.Random) -> None:
        below = self.log.segments[-1].base_offset
        droppable = self.droppable(below)
        for done, _ in enumerate(Compactor(self.shelf, step_bytes=700).steps(self.log, self.now_ms)):
            if done == crash_after:
                break
        else:
            for batch in self.batches:
                batch.gone |= droppable & {record.offset for record in batch.records if record.value is not None}
                batch.maybe_gone |= droppable & {record.offset for record in batch.records}
            self.rebuilt = True
            return
        for batch in self.batches:
            batch.maybe_gone |= droppable & {record.offset for record in batch.records}
        self.crash(choice)

    def droppable(self, below: int) -> set[int]:
        """Offsets of records that a later one of the same key replaces, and of tombstones."""
        dirty = max(self.log.cleaned_to, self.start)
        newest = {r.key: r.offset for b in self.batches for r in b.records if r.offset < below}
        return {
            record.offset
            for batch in self.batches
            for record in batch.records
            if record.offset < below and dirty < below and (newest[record.key] != record.offset or record.value is None)
        }

    # -- the end and the beginning ------------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.open()
        assert self.log.scanned_bytes == 0
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)

    @rule()
    def kill_and_start(self) -> None:
        """The process dies, the kernel lives: nothing at all is lost."""
        self.shelf.files.close()
        self.open()
        self.rebuilt = True
        assert self.log.end_offset == self.end

    @rule(choice=st.randoms(use_true_random=False))
    def crash(self, choice: random.Random) -> None:
        synced = self.log.synced_offset
        self.disk.crash(choice)
        self.open()
        self.rebuilt = True
        assert self.log.offline is None
        end = self.log.end_offset
        assert synced <= end <= self.end
        assert end in {self.start, self.end, *(batch.end for batch in self.batches)} | {b.after for b in self.batches}
        before = self.newest_of_each_key()
        self.forget_from(end)
        assert self.log.start_offset == self.start
        there = {record.offset for record in self.everything()}
        for key, offset in self.newest_of_each_key().items():
            lost_its_newest = offset != before.get(key)
            assert not lost_its_newest or offset in there or offset < self.start, f"{key!r} lost both its records"

    def newest_of_each_key(self) -> dict[bytes | None, int]:
        """Without tombstones, which may go for good."""
        newest = {record.key: record for batch in self.batches for record in batch.records}
        return {key: record.offset for key, record in newest.items() if record.value is not None}

    @precondition(lambda self: self.unsynced)
    @rule(choice=st.randoms(use_true_random=False))
    def break_a_sync(self, choice: random.Random) -> None:
        """A failed sync takes the log offline; it is not tried again, and nobody reads or writes any more."""
        self.disk.fail_syncs = 1
        with pytest.raises(OSError, match="Input/output"):
            self.log.sync()
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                self.log.sync()
        with pytest.raises(KafkaError) as refused:
            self.log.read(self.start, 100, self.end, at_least_one=True)
        assert refused.value.code is ErrorCode.kafka_storage_error
        self.disk.fail_syncs = 0
        self.crash(choice)

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def offsets_agree(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert self.log.synced_offset <= self.log.end_offset

    @invariant()
    def epochs_agree(self) -> None:
        for batch in self.batches:
            if batch.base >= self.start:
                assert self.log.epochs.epoch_of(batch.base) == batch.epoch

    def everything(self) -> list[Record]:
        """What the log holds, read in small pieces."""
        found: list[Record] = []
        offset = self.start
        while offset < self.end:
            got = self.load(offset, 300, self.end, at_least_one=True)
            if not got:
                break
            offset = got[-1][1]
            found.extend(record for records, _ in got for record in records)
        return found

    @rule()
    def read_everything(self) -> None:
        found = self.everything()
        expected = [r for b in self.batches for r in b.records if r.offset >= self.start]
        gone = {offset for batch in self.batches for offset in batch.gone}
        maybe = {offset for batch in self.batches for offset in batch.maybe_gone}
        by_offset = {record.offset: record for record in expected}
        offsets = [record.offset for record in found if record.offset >= self.start]
        assert offsets == sorted(set(offsets))
        assert all(by_offset[record.offset] == record for record in found if record.offset >= self.start)
        assert not gone & set(offsets)
        assert set(by_offset) - gone - maybe <= set(offsets)

    @rule(choice=st.randoms(use_true_random=False), max_bytes=st.integers(0, 2000), at_least_one=st.booleans())
    def read_somewhere(self, choice: random.Random, max_bytes: int, at_least_one: bool) -> None:
        if self.start == self.end:
            return
        offset = choice.randint(self.start, self.end)
        below = choice.choice([self.end, *(batch.base for batch in self.batches if batch.base >= self.start)])
        got = self.load(offset, max_bytes, below, at_least_one=at_least_one)
        assert all(end <= below for _, end in got)
        if got:
            assert got[0][1] > offset
            wanted = [r.offset for b in self.batches for r in b.records if offset <= r.offset < got[-1][1]]
            certain = set(wanted) - {o for b in self.batches for o in b.gone | b.maybe_gone}
            assert certain <= {record.offset for records, _ in got for record in records}
        elif offset < below and at_least_one:
            left = [r.offset for b in self.batches for r in b.records if offset <= r.offset < below]
            assert not set(left) - {o for b in self.batches for o in b.gone | b.maybe_gone}

    @rule()
    def follow(self) -> None:
        """Read what was written last, which is then kept in memory: it is what the disk has."""
        if self.batches and self.batches[-1].base >= self.start:
            piece = self.log.read(self.batches[-1].base, 10**6, self.end, at_least_one=True)
            assert piece.load_cached() in (None, piece.load())

    def load(self, offset: int, max_bytes: int, below: int, *, at_least_one: bool) -> list[tuple[list[Record], int]]:
        """The batches of one read as (records, next offset)."""
        piece = self.log.read(offset, max_bytes, below, at_least_one=at_least_one)
        data = piece.load_cached()
        if data is None:
            data = piece.load()
        batches = []
        at = 0
        while at < len(data):
            header = read_header(data, at)
            batches.append((decode(data, at), header.next_offset))
            at += header.size
        assert at == len(data)
        assert len(data) <= max_bytes or (at_least_one and len(batches) == 1)
        return batches

    @rule(choice=st.randoms(use_true_random=False))
    def find_by_time(self, choice: random.Random) -> None:
        moment = self.now_ms - choice.randint(0, 60_000)
        found = self.log.find_time(moment, self.end)
        unsure = {o for b in self.batches for o in b.gone | b.maybe_gone}
        late = [r for b in self.batches for r in b.records if r.offset >= self.start and r.timestamp >= moment]
        certain = [record.offset for record in late if record.offset not in unsure]
        if found is None:
            assert not certain
        else:
            assert found[0] in {record.offset for record in late}
            assert not certain or found[0] <= certain[0]


LogMachine.TestCase.settings = settings(
    max_examples=5000 if SOAK else 150,
    stateful_step_count=80 if SOAK else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
TestLogMachine = LogMachine.TestCase


def test_a_new_folder_survives_a_power_cut_with_its_first_synced_records() -> None:
    for seed in range(50):
        disk = SimDisk()
        disk.make_dirs(FOLDER)
        disk.sync_dir(Path("/"))
        identity.save(disk, FOLDER, uuid.UUID(int=7))
        checkpoints.hint(disk, FOLDER, checkpoints.Checkpoint())
        shelf = Shelf(disk, FilePool(disk), IndexShelf())
        log = PartitionLog(shelf, recovery.load(shelf, FOLDER, TopicConfig(), 0), TopicConfig(), set(), 0)
        log.append(memoryview(encode_batch([Record(0, 0, b"k", b"v")])), 0, now_ms=0)
        log.sync()
        disk.crash(random.Random(seed))
        shelf = Shelf(disk, FilePool(disk), IndexShelf())
        loaded = recovery.load(shelf, FOLDER, TopicConfig(), 0)
        assert (loaded.topic_id, loaded.end_offset) == (uuid.UUID(int=7), 1), f"seed {seed}"
