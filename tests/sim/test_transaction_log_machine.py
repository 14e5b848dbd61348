"""Transactions in a log on a disk that crashes, held against a list of what was written.

Hypothesis lets producers write, commit and abort, under the old and the new rules for epochs, and rolls, syncs,
truncates, trims, compacts and cuts the power in between. After each step the log must say of transactions what a full
scan of the list says: what is open, how far it is stable, which were aborted; and a read_committed reader that starts
anywhere must see what was committed, nothing else, and the newest record of every key. HEADRACE_SOAK=1 runs many more.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.log import identity, recovery
from headrace.log.compaction import Compactor
from headrace.log.files import FilePool
from headrace.log.indexes import IndexShelf
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Shelf
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import TRANSACTIONAL, walk
from headrace.wire.end_markers import read_marker
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk

SOAK = os.environ.get("HEADRACE_SOAK") == "1"
FOLDER = Path("/data/orders-0")
CONFIG = TopicConfig(
    cleanup_policy=("compact",), segment_bytes=900, index_interval_bytes=200, file_delete_delay_ms=1000,
    delete_retention_ms=5000,
)  # fmt: skip
PRODUCERS = [1, 2, 3]
KEYS = [b"a", b"b", b"c"]
PLAIN, DATA, COMMIT, ABORT = "plain", "data", "commit", "abort"


class Entry(NamedTuple):
    """One batch of the list: plain, part of a transaction, or the end of one."""

    kind: str
    base: int
    end: int
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    keys: tuple[bytes, ...] = ()


class Txn(NamedTuple):
    producer: int
    first: int
    marker: int | None
    commit: bool


def scanned(entries: list[Entry]) -> list[Txn]:
    """All transactions, in the order of their first records."""
    open_since: dict[int, int] = {}
    found: list[Txn] = []
    for entry in entries:
        if entry.kind == DATA:
            open_since.setdefault(entry.producer, entry.base)
        elif entry.kind in (COMMIT, ABORT) and entry.producer in open_since:
            found.append(Txn(entry.producer, open_since.pop(entry.producer), entry.base, entry.kind == COMMIT))
    found += [Txn(producer, first, None, False) for producer, first in open_since.items()]
    return sorted(found, key=lambda txn: txn.first)


class TransactionLogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.now_ms = 1_000_000
        self.entries: list[Entry] = []
        self.start = 0
        self.end = 0
        self.high_watermark = 0
        self.compacted = False  # records that others replace may be gone
        self.lossy = False  # a part of some transaction may be gone

    @initialize()
    def make(self) -> None:
        self.disk.make_dirs(FOLDER)
        self.disk.sync_dir(Path("/"))
        self.disk.sync_dir(FOLDER.parent)
        identity.save(self.disk, FOLDER, uuid.UUID(int=7))
        self.open()

    def open(self) -> None:
        self.shelf = Shelf(self.disk, FilePool(self.disk, capacity=3), IndexShelf(400))
        loaded = recovery.load(self.shelf, FOLDER, CONFIG, self.now_ms)
        self.log = PartitionLog(self.shelf, loaded, CONFIG, set(), self.now_ms)
        self.log.finish_truncation()
        assert self.log.offline is None
        assert self.log.start_offset == self.start

    # -- writing ------------------------------------------------------------------------------------------------------

    def last(self, producer: int) -> Entry:
        mine = (entry for entry in reversed(self.entries) if entry.producer == producer)
        return next(mine, Entry(PLAIN, 0, 0, producer, 0, 0))

    def next_sequence(self, producer: int) -> tuple[int, int]:
        """(epoch, sequence) of what a producer writes next."""
        last = self.last(producer)
        mine = [e for e in self.entries if e.producer == producer and e.epoch == last.epoch and e.kind == DATA]
        return last.epoch, mine[-1].sequence + len(mine[-1].keys) if mine else 0

    def encoded(self, keys: list[bytes], producer: int = -1, epoch: int = -1, sequence: int = -1) -> memoryview:
        records = [Record(at, self.now_ms, key, b"value") for at, key in enumerate(keys)]
        attributes = TRANSACTIONAL if producer >= 0 else 0
        return memoryview(
            encode_batch(
                records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, attributes=attributes
            )
        )

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    def write_plainly(self, keys: list[bytes]) -> None:
        assert self.log.append(self.encoded(keys), 0, now_ms=self.now_ms).base_offset == self.end
        self.note(Entry(PLAIN, self.end, self.end + len(keys), keys=tuple(keys)))

    @rule(producer=st.sampled_from(PRODUCERS), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    def write(self, producer: int, keys: list[bytes]) -> None:
        epoch, sequence = self.next_sequence(producer)
        records = self.encoded(keys, producer, epoch, sequence)
        appended = self.log.append(records, 0, now_ms=self.now_ms, transactional=True)
        assert (appended.base_offset, appended.duplicate) == (self.end, False)
        self.note(Entry(DATA, self.end, self.end + len(keys), producer, epoch, sequence, tuple(keys)))

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans(), strict=st.booleans(), bumps=st.booleans())
    def finish(self, producer: int, commit: bool, strict: bool, bumps: bool) -> None:
        epoch = self.last(producer).epoch + (1 if strict or bumps else 0)
        appended = self.log.append_marker(producer, epoch, 0, commit, 0, strict=strict, now_ms=self.now_ms)
        if appended.duplicate:
            assert not any(txn.producer == producer and txn.marker is None for txn in scanned(self.entries))
            return
        assert appended.base_offset == self.end
        self.note(Entry(COMMIT if commit else ABORT, self.end, self.end + 1, producer, epoch))

    @rule(choice=st.randoms(use_true_random=False), steps=st.integers(5, 25))
    def go_on(self, choice: random.Random, steps: int) -> None:
        """A while of normal life, so that there is something to break."""
        for _ in range(steps):
            producer, keys = choice.choice(PRODUCERS), choice.choices(KEYS, k=choice.randint(1, 3))
            deed = choice.random()
            if deed < 0.15:
                self.write_plainly(keys)
            elif deed < 0.6:
                self.write(producer, keys)
            else:
                self.finish(producer, choice.random() < 0.5, choice.random() < 0.8, choice.random() < 0.5)
        self.high_watermark = self.end

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans())
    def finish_again(self, producer: int, commit: bool) -> None:
        """A marker that comes a second time, with whatever came after the first."""
        last = self.last(producer)
        if last.kind == PLAIN or self.lossy or self.compacted:
            return
        if any(txn.producer == producer and txn.marker is None for txn in scanned(self.entries)):
            with pytest.raises(KafkaError) as refused:
                self.log.append_marker(producer, last.epoch, 0, commit, 0, strict=True, now_ms=self.now_ms)
            assert refused.value.code is ErrorCode.invalid_producer_epoch
        else:
            appended = self.log.append_marker(producer, last.epoch, 0, commit, 0, strict=True, now_ms=self.now_ms)
            assert appended.duplicate

    @rule(producer=st.sampled_from(PRODUCERS))
    def write_too_late(self, producer: int) -> None:
        epoch = self.last(producer).epoch
        if epoch == 0 or self.lossy or self.compacted:
            return
        with pytest.raises(KafkaError) as refused:
            self.log.append(self.encoded(KEYS, producer, epoch - 1, 0), 0, now_ms=self.now_ms, transactional=True)
        assert refused.value.code is ErrorCode.invalid_producer_epoch

    def note(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.end = entry.end

    # -- time and shape -----------------------------------------------------------------------------------------------

    @rule(part=st.floats(0, 1))
    def commit_records(self, part: float) -> None:
        ends = [entry.end for entry in self.entries if entry.end > self.high_watermark]
        if ends:
            self.high_watermark = ends[int((len(ends) - 1) * part)]

    @rule(ms=st.integers(1, 6000))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(checkpoint=st.booleans())
    def sync(self, checkpoint: bool) -> None:
        self.log.sync(checkpoint=checkpoint)

    @rule()
    def retain(self) -> None:
        self.log.apply_retention(self.now_ms)

    @rule(part=st.floats(0, 0.6))
    def delete_records(self, part: float) -> None:
        offset = self.start + int((self.high_watermark - self.start) * part)
        self.log.advance_start(offset)
        self.lossy = self.lossy or offset > self.start
        self.start = max(self.start, offset)

    @precondition(lambda self: self.entries)
    @rule(choice=st.randoms(use_true_random=False))
    def truncate(self, choice: random.Random) -> None:
        cut = choice.choice(self.entries[-5:] if choice.random() < 0.8 else self.entries)
        if cut.base >= (self.high_watermark if self.compacted else self.start):
            self.log.truncate_to(cut.base)
            self.forget_from(self.log.end_offset)

    @rule(gap=st.integers(0, 9), choice=st.randoms(use_true_random=False))
    def restart(self, gap: int, choice: random.Random) -> None:
        if choice.random() < 0.8:
            return  # it makes the log empty, and that is dull
        self.log.restart_at(self.end + gap)
        self.entries.clear()
        self.start = self.end = self.high_watermark = self.end + gap

    def forget_from(self, end: int) -> None:
        self.entries = [entry for entry in self.entries if entry.end <= end]
        assert self.compacted or end in {self.start, *(entry.end for entry in self.entries)}
        self.end = end
        self.start = min(self.start, end)
        self.high_watermark = min(self.high_watermark, end)

    @rule(crash_after=st.none() | st.integers(0, 20), choice=st.randoms(use_true_random=False))
    def compact(self, crash_after: int | None, choice: random.Random) -> None:
        self.log.first_unstable_offset(self.high_watermark)
        self.compacted = True
        if choice.random() < 0.5:
            self.end_all()
        for done, _ in enumerate(Compactor(self.shelf, step_bytes=500).steps(self.log, self.now_ms)):
            if done == crash_after:
                self.crash(choice)
                return

    def end_all(self) -> None:
        """So that nothing holds compaction up."""
        for txn in scanned(self.entries):
            if txn.marker is None:
                self.finish(txn.producer, False, True, True)
        self.log.roll(self.now_ms)
        self.high_watermark = self.end
        self.log.first_unstable_offset(self.high_watermark)

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.open()
        assert self.log.scanned_bytes == 0

    @rule()
    def kill_and_start(self) -> None:
        self.shelf.files.close()
        self.open()

    @rule(choice=st.randoms(use_true_random=False))
    def crash(self, choice: random.Random) -> None:
        synced = self.log.synced_offset
        self.disk.crash(choice)
        self.open()
        assert synced <= self.log.end_offset <= self.end
        self.forget_from(self.log.end_offset)

    @rule(choice=st.randoms(use_true_random=False))
    def damage_a_file_of_aborts(self, choice: random.Random) -> None:
        """One that is not being written: it is made anew, at the latest when it is asked for its next start."""
        self.log.sync(checkpoint=True)
        active = f"{self.log.segments[-1].base_offset:020d}"
        names = [n for n in self.disk.list_dir(FOLDER) if n.endswith(".txnindex") and not n.startswith(active)]
        damaged = [name for name in names if self.disk.file_size(FOLDER / name)]
        if damaged:
            name = choice.choice(damaged)
            self.disk.flip_bit(FOLDER / name, choice.randrange(8 * self.disk.file_size(FOLDER / name)))
        self.kill_and_start()

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def what_is_open_agrees(self) -> None:
        if self.lossy:
            return
        txns = scanned(self.entries)
        described = {f.producer_id: f for f in self.log.producers_described()}
        assert {p: f.open_since for p, f in described.items() if f.open_since >= 0} == {
            txn.producer: txn.first for txn in txns if txn.marker is None
        }
        for producer in {entry.producer for entry in self.entries} - {-1}:
            if producer in described or not self.compacted:
                assert described[producer].epoch == self.last(producer).epoch
        unstable = [txn.first for txn in txns if txn.marker is None or txn.marker >= self.high_watermark]
        assert self.log.first_unstable_offset(self.high_watermark) == min(unstable, default=None)

    @rule(choice=st.randoms(use_true_random=False))
    def the_index_agrees_with_a_full_scan(self, choice: random.Random) -> None:
        if self.compacted or self.lossy:
            return
        aborted = [txn for txn in scanned(self.entries) if txn.marker is not None and not txn.commit]
        for _ in range(5):
            first, below = sorted((choice.randint(self.start, self.end), choice.randint(self.start, self.end + 1)))
            assert sorted(self.log.aborted(first, below)) == sorted(
                (txn.producer, txn.first)
                for txn in aborted
                if txn.marker is not None and txn.marker >= first and txn.first < below
            )

    @rule(choice=st.randoms(use_true_random=False), max_bytes=st.integers(100, 1500))
    def read_committed(self, choice: random.Random, max_bytes: int) -> None:
        unstable = self.log.first_unstable_offset(self.high_watermark)
        stable = self.high_watermark if unstable is None else max(self.start, min(unstable, self.high_watermark))
        offset = choice.randint(self.start, stable) if choice.random() < 0.7 else self.start
        seen = dict(self.committed_records(offset, stable, max_bytes))
        ended = {(txn.producer, txn.first): txn for txn in scanned(self.entries) if txn.commit}
        expected: dict[int, bytes] = {}
        first: dict[int, int] = {}
        for entry in self.entries:
            if entry.kind in (COMMIT, ABORT):
                first.pop(entry.producer, None)
                continue
            if entry.kind == DATA and (entry.producer, first.setdefault(entry.producer, entry.base)) not in ended:
                continue
            expected |= {entry.base + at: key for at, key in enumerate(entry.keys)}
        expected = {at: key for at, key in expected.items() if offset <= at < stable}
        assert seen.items() <= expected.items(), "a record that was not committed"
        if not self.compacted:
            assert seen == expected
        newest = {key: at for at, key in expected.items()}
        assert set(newest.values()) <= seen.keys(), "the newest record of a key is missing"

    def committed_records(self, offset: int, stable: int, max_bytes: int) -> Iterator[tuple[int, bytes]]:
        """(offset, key) as a client with isolation level read_committed finds them."""
        from_offset = offset
        while offset < stable:
            data = self.log.read(offset, max_bytes, stable, at_least_one=True).load()
            if not data:
                return
            after = max(header.next_offset for _, header in walk(data))
            aborted = sorted(self.log.aborted(offset, after), key=lambda txn: txn[1])
            skipped: set[int] = set()
            for at, header in walk(data):
                while aborted and aborted[0][1] <= header.last_offset:
                    skipped.add(aborted.pop(0)[0])
                if header.is_control:
                    marker = read_marker(data, at)
                    if marker is not None and not marker.commit:
                        skipped.discard(header.producer_id)
                elif not header.is_transactional or header.producer_id not in skipped:
                    yield from ((r.offset, r.key) for r in decode(data, at) if r.offset >= from_offset and r.key)
            offset = after


TransactionLogMachine.TestCase.settings = settings(
    max_examples=3000 if SOAK else 60,
    stateful_step_count=80 if SOAK else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
TestTransactionLogMachine = TransactionLogMachine.TestCase
