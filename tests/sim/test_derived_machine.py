"""Derived state on a disk that crashes, held against the same state made anew from the batches of the log.

Hypothesis appends as a leader and as a follower, rolls, syncs, truncates, trims, starts over, stops and cuts the power.
After each step every state must be what the batches in the log say. That is shown for the kinds that there are, and for
one that only this test knows: adding a kind takes a class and an entry in the list (log/states.py), nothing else.
HEADRACE_SOAK=1 runs many more examples.
"""

from __future__ import annotations

import os
import random
import uuid
from collections import Counter
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.log import identity, recovery, states
from headrace.log.dedup import Dedup
from headrace.log.derived import PLAIN, DerivedState, LogOnDisk, Moment, Occasion, Store, StoredBatch, Trim
from headrace.log.files import FilePool
from headrace.log.id_journal import IdJournal
from headrace.log.id_window import IdWindow
from headrace.log.indexes import IndexShelf
from headrace.log.partition_folder import PartitionFolder
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Shelf
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import TRANSACTIONAL, read_header, stamp
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from sim.disk import SimDisk

SOAK = os.environ.get("HEADRACE_SOAK") == "1"
FOLDER = Path("/data/orders-0")
WINDOW_MS = 1 << 40
PLAIN_TOPIC = TopicConfig(segment_bytes=900, index_interval_bytes=200, retention_ms=50_000, file_delete_delay_ms=1000)
WITH_IDS = TopicConfig(
    segment_bytes=900, index_interval_bytes=200, retention_ms=50_000, file_delete_delay_ms=1000,
    dedup_window_ms=WINDOW_MS,
)  # fmt: skip
PRODUCERS = [1, 2, 3]


class BatchesPerEpoch(DerivedState):
    """How many batches each leader epoch has in the log: a kind that no part of a log knows of.

    File `batches-per-epoch`: the offset up to which it tells, then epoch and base offset of each batch.
    """

    __slots__ = ("batches", "told_to")

    hears = PLAIN

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []
        self.told_to = 0

    def load(self, log: LogOnDisk) -> int:
        self.batches, self.told_to = [], log.segments[0].base_offset
        path = log.folder.directory / "batches-per-epoch"
        if log.folder.disk.exists(path):
            end, *rest = map(int, log.folder.disk.read_bytes(path).split())
            found = list(zip(rest[::2], rest[1::2], strict=True))
            self.batches = [batch for batch in found if batch[1] < log.safe_to]
            self.told_to = min(end, log.safe_to)
            if end > log.safe_to:
                self.write(log.folder)
        return self.told_to

    def write(self, folder: PartitionFolder) -> None:
        numbers = [self.told_to, *(number for batch in self.batches for number in batch)]
        folder.replace_file("batches-per-epoch", b" ".join(b"%d" % number for number in numbers))

    def appended(self, batch: StoredBatch) -> None:
        self.batches.append((batch.header.leader_epoch, batch.header.base_offset))
        self.told_to = batch.header.next_offset

    def restarted(self, log: LogOnDisk) -> None:
        self.batches, self.told_to = [], log.start_offset
        log.folder.disk.remove(log.folder.directory / "batches-per-epoch")

    def trimmed(self, trim: Trim) -> None:
        self.batches = [batch for batch in self.batches if batch[1] >= trim.start_offset]

    def snapshot(self, moment: Moment) -> Store | None:
        if moment.occasion is not Occasion.CHECKPOINT:
            return None
        captured = BatchesPerEpoch()
        captured.batches, captured.told_to = list(self.batches), moment.end_offset
        return Store(partial(captured.write, moment.folder), durable=True)


class DerivedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.whole = True  # every batch since the log began or started over is there

    @initialize(config=st.sampled_from([PLAIN_TOPIC, WITH_IDS]), more=st.booleans())
    def make(self, config: TopicConfig, more: bool) -> None:
        self.config = config
        states.MORE[:] = [BatchesPerEpoch] if more else []
        self.disk.make_dirs(FOLDER)
        self.disk.sync_dir(Path("/"))
        self.disk.sync_dir(FOLDER.parent)
        identity.save(self.disk, FOLDER, uuid.UUID(int=7))
        self.open()

    def teardown(self) -> None:
        states.MORE.clear()

    def open(self) -> None:
        self.shelf = Shelf(self.disk, FilePool(self.disk, capacity=3), IndexShelf(400))
        loaded = recovery.load(self.shelf, FOLDER, self.config, self.now_ms)
        self.log = PartitionLog(self.shelf, loaded, self.config, set(), self.now_ms)
        self.log.finish_truncation()
        assert self.log.offline is None

    # -- appending ----------------------------------------------------------------------------------------------------

    def batch(self, count: int, name: bytes, producer: int = -1, *, transactional: bool = False) -> bytearray:
        known = self.log.producers.producers.get(producer)
        sequence = max(0, known.next_sequence) if known is not None else 0
        return encode_batch(
            [Record(at, self.now_ms, b"k", b"v" * 20, (("headrace.id", name + b"%d" % at),)) for at in range(count)],
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0 if known is None else known.epoch,
            base_sequence=-1 if producer < 0 else sequence,
            attributes=TRANSACTIONAL if transactional else 0,
        )

    @rule(
        count=st.integers(1, 3), name=st.sampled_from([b"a", b"b", b"c"]), producer=st.sampled_from([-1, *PRODUCERS]),
        transactional=st.booleans(),
    )  # fmt: skip
    def append(self, count: int, name: bytes, producer: int, transactional: bool) -> None:
        inside = producer >= 0 and (transactional or producer in self.log.producers.open)
        records = memoryview(self.batch(count, name, producer, transactional=inside))
        self.log.append(records, self.epoch, now_ms=self.now_ms, transactional=inside)

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans())
    def finish(self, producer: int, commit: bool) -> None:
        known = self.log.producers.producers.get(producer)
        epoch = 0 if known is None else known.epoch + 1
        self.log.append_marker(producer, epoch, 0, commit, self.epoch, strict=True, now_ms=self.now_ms)

    @rule(gap=st.integers(0, 3), name=st.sampled_from([b"a", b"d"]), producer=st.sampled_from([-1, *PRODUCERS]))
    def append_as_follower(self, gap: int, name: bytes, producer: int) -> None:
        inside = producer in self.log.producers.open
        records = memoryview(self.batch(2, name, producer, transactional=inside))
        stamp(records, 0, self.log.end_offset + gap, read_header(records).length, self.epoch)
        self.log.append_as_follower(records, self.now_ms)

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

    @rule(checkpoint=st.booleans())
    def sync(self, checkpoint: bool) -> None:
        self.log.sync(checkpoint=checkpoint)

    @rule(part=st.floats(0, 1), often=st.integers(0, 3))
    def delete_records(self, part: float, often: int) -> None:
        if often:
            return  # a log without its beginning tells less
        start, end = self.log.start_offset, self.log.end_offset
        self.log.advance_start(start + int((end - start) * part))
        self.whole = self.whole and self.log.start_offset == start

    @rule()
    def retain(self) -> None:
        start = self.log.start_offset
        self.log.apply_retention(self.now_ms)
        self.whole = self.whole and self.log.start_offset == start

    @precondition(lambda self: self.log.end_offset > self.log.start_offset)
    @rule(part=st.floats(0, 0.99))
    def truncate(self, part: float) -> None:
        start, end = self.log.start_offset, self.log.end_offset
        self.log.truncate_to(start + int((end - start) * part))

    @rule(gap=st.integers(0, 9), often=st.integers(0, 3))
    def restart(self, gap: int, often: int) -> None:
        if not often:
            self.log.restart_at(self.log.end_offset + gap)
            self.whole = True

    # -- the end and the beginning ------------------------------------------------------------------------------------

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
        self.disk.crash(choice)
        self.open()

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def every_state_is_what_the_batches_say(self) -> None:
        log, start = self.log, self.log.start_offset
        made = states.LogStates()
        made.seen_ids.dedup = Dedup(IdWindow(WINDOW_MS, 1 << 24), IdJournal(self.disk, FOLDER / "nowhere"))
        per_epoch: Counter[int] = Counter()
        for batch in self.batches():
            for state in made.walk:
                state.appended(batch)
            if batch.header.base_offset >= start:
                per_epoch[batch.header.leader_epoch] += 1
                assert log.epochs.epoch_of(batch.header.base_offset) == batch.header.leader_epoch
        assert log.thinned or not made.thinned.known
        for name, producer in made.snapshots.states.producers.items():
            known = log.producers.producers[name]
            assert known.epoch == producer.epoch
            assert not producer.batches or known.next_sequence == producer.next_sequence
            assert not self.whole or known.batches == producer.batches
        if self.whole:
            assert log.epochs.latest == made.epochs.latest
            assert log.producers.open == made.snapshots.states.open
            assert log.aborted_txns.spans() == made.aborted_txns.spans()
        self.ids_agree(made.seen_ids.dedup)
        if states.MORE:
            added = log._states.walk[-1]
            assert isinstance(added, BatchesPerEpoch)
            assert Counter(epoch for epoch, base in added.batches if base >= start) == per_epoch

    def ids_agree(self, made: Dedup) -> None:
        if self.log.dedup is None:
            return
        seen, anew = self.log.dedup.window, made.window
        if self.whole:
            assert (seen._seen_ms.keys(), seen._pending) == (anew._seen_ms.keys(), anew._pending)
        else:
            assert seen._seen_ms.keys() >= anew._seen_ms.keys()

    def batches(self) -> list[StoredBatch]:
        return [
            StoredBatch(header, self.now_ms, None, position, None, segment)
            for segment in self.log.segments
            for position, header in segment.headers(0, segment.size, wait=True)
        ]


DerivedMachine.TestCase.settings = settings(
    max_examples=3000 if SOAK else 120,
    stateful_step_count=80 if SOAK else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
TestDerivedMachine = DerivedMachine.TestCase
