"""Delayed records on a disk that crashes, held against a list of what was written and what it means.

Hypothesis parks, cancels, moves, ends transactions and releases, rolls, syncs, truncates, trims and parks again, stops,
kills and cuts the power; a follower copies the log in pieces of any size. After each step the schedule is what the list
says of the offsets that the log has, in memory and on the follower, and what a release wrote is what was due, in order.
HEADRACE_SOAK=1 runs many more examples.
"""

from __future__ import annotations

import os
import random
import uuid
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.log import identity, recovery
from headrace.log.files import FilePool
from headrace.log.indexes import IndexShelf
from headrace.log.partition_log import PartitionLog
from headrace.log.pending_batch import pending_batch
from headrace.log.release import release
from headrace.log.repark import cancelled, reparked
from headrace.log.schedule import Due
from headrace.log.segment import Shelf
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import TRANSACTIONAL, walk
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk

SOAK = os.environ.get("HEADRACE_SOAK") == "1"
FOLDER = Path("/data/orders-0")
CONFIG = TopicConfig(
    segment_bytes=1200, index_interval_bytes=200, delayed=True, retention_ms=30_000, file_delete_delay_ms=1000
)
PRODUCERS = [1, 2]
DELAYS = st.sampled_from([None, 0, 500, 1500, 60_000, 5_000_000])


class Told(NamedTuple):
    """What one write means."""

    end: int
    parked: dict[int, tuple[int, int]]  # by id: due time, producer
    changed: dict[int, int]  # by id: the next due time, or -1
    ended: tuple[int, bool] | None = None  # a transaction, and whether it was committed


Waits = tuple[dict[int, int], dict[int, dict[int, int]]]


def fold(writes: list[Told]) -> Waits:
    """What is pending, and what is held by producer."""
    pending: dict[int, int] = {}
    held: dict[int, dict[int, int]] = {}
    for write in writes:
        for key, (due, producer) in write.parked.items():
            (pending if producer < 0 else held.setdefault(producer, {}))[key] = due
        for key, due in write.changed.items():
            for place in (pending, *held.values()):
                if key in place and due < 0:
                    del place[key]
                elif key in place:
                    place[key] = due
        if write.ended is not None:
            left = held.pop(write.ended[0], {})
            pending |= left if write.ended[1] else {}
    return pending, {producer: left for producer, left in held.items() if left}


def schedule_of(log: PartitionLog) -> Waits:
    schedule = log.schedule
    pending = {key: due for key, due, _ in schedule.pending.page(0, 10_000)}
    held = {who: {key: due for key, due, _ in left.page(0, 10_000)} for who, left in schedule.held.items()}
    return pending, {producer: left for producer, left in held.items() if left}


class ScheduleMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk, self.other_disk = SimDisk(), SimDisk()
        self.now_ms = 1_000_000
        self.writes: list[Told] = []
        self.epochs: dict[int, int] = dict.fromkeys(PRODUCERS, 0)
        self.committed = 0

    @initialize()
    def make(self) -> None:
        for disk in (self.disk, self.other_disk):
            disk.make_dirs(FOLDER)
            disk.sync_dir(Path("/"))
            disk.sync_dir(FOLDER.parent)
            identity.save(disk, FOLDER, uuid.UUID(int=7))
        self.follower = self.opened(self.other_disk)[1]
        self.open()

    def opened(self, disk: SimDisk) -> tuple[Shelf, PartitionLog]:
        shelf = Shelf(disk, FilePool(disk, capacity=3), IndexShelf(400))
        log = PartitionLog(shelf, recovery.load(shelf, FOLDER, CONFIG, self.now_ms), CONFIG, set(), self.now_ms)
        log.finish_truncation()
        assert log.offline is None
        return shelf, log

    def open(self) -> None:
        self.shelf, self.log = self.opened(self.disk)

    @property
    def end(self) -> int:
        return self.writes[-1].end if self.writes else 0

    # -- writing ------------------------------------------------------------------------------------------------------

    @rule(delays=st.lists(DELAYS, min_size=1, max_size=4), producer=st.sampled_from([-1, -1, *PRODUCERS]))
    def write(self, delays: list[int | None], producer: int) -> None:
        headers = [() if delay is None else (("headrace.delay-ms", b"%d" % delay),) for delay in delays]
        base = self.append(headers, producer)
        dues = {base + at: (self.now_ms + ms, producer) for at, ms in enumerate(delays) if ms is not None}
        self.writes.append(Told(self.log.end_offset, dues, {}))

    def append(self, headers: list[tuple[tuple[str, bytes], ...]], producer: int) -> int:
        inside = producer >= 0
        known = self.log.producers.producers.get(producer)
        sequence = known.batches[-1].last_sequence + 1 if known is not None and known.batches else 0
        encoded = encode_batch(
            [Record(at, self.now_ms, b"k", b"%d" % self.now_ms, mine) for at, mine in enumerate(headers)],
            producer_id=producer,
            producer_epoch=self.epochs[producer] if inside else -1,
            base_sequence=sequence if inside else -1,
            attributes=TRANSACTIONAL if inside else 0,
        )
        return self.log.append(memoryview(encoded), 0, now_ms=self.now_ms, transactional=inside).base_offset

    @precondition(lambda self: len(self.log.schedule.pending))
    @rule(choice=st.randoms(use_true_random=False), delay=DELAYS)
    def change(self, choice: random.Random, delay: int | None) -> None:
        key = choice.choice(sorted(fold(self.writes)[0]))
        if delay is None:
            self.append([(("headrace.cancel", b"%d" % key),)], -1)
            changed = {key: -1}
        else:
            self.append([(("headrace.move", b"%d" % key), ("headrace.delay-ms", b"%d" % delay))], -1)
            changed = {key: self.now_ms + delay}
        self.writes.append(Told(self.log.end_offset, {}, changed))

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans())
    def finish(self, producer: int, commit: bool) -> None:
        self.epochs[producer] += 1
        self.log.append_marker(producer, self.epochs[producer], 0, commit, 0, strict=True, now_ms=self.now_ms)
        self.writes.append(Told(self.log.end_offset, {}, {}, (producer, commit)))

    @rule(limit=st.integers(1, 5))
    def release(self, limit: int) -> None:
        """What a leader does when its clock says so."""
        wanted = sorted((due, key) for key, due in fold(self.writes)[0].items() if due <= self.now_ms)
        while wanted:
            dues, more = self.log.schedule.due(self.now_ms, limit, self.log.end_offset)
            assert [(due.due_ms, due.id) for due in dues] == wanted[: len(dues)]
            assert dues or more
            if dues:
                records, count = release(dues, self.log.bodies(dues), CONFIG, self.now_ms, self.now_ms)
                appended = self.log.append_notes(records, 0, now_ms=self.now_ms)
                self.check_released(appended.base_offset, wanted[:count])
                changed = {key: -1 for _, key in wanted[:count]}
                self.writes.append(Told(self.log.end_offset, {}, changed))
                del wanted[:count]
        assert not self.log.schedule.due(self.now_ms, limit, self.log.end_offset)[0]

    def check_released(self, offset: int, wanted: list[tuple[int, int]]) -> None:
        data = self.log.read(offset, 1 << 20, self.log.end_offset, at_least_one=True).load()
        headers = [dict(record.headers) for record in decode(data)]
        told = [(headers["headrace.scheduled.for"], headers["headrace.scheduled.id"]) for headers in headers]
        assert told == [(b"%d" % due, b"%d" % key) for due, key in wanted]

    @rule(rows=st.integers(1, 5), max_bytes=st.sampled_from([0, 200, 10_000]))
    def list_pending(self, rows: int, max_bytes: int) -> None:
        """What a view of what is pending gives, page by page."""
        found: dict[int, int] = {}
        while taken := self.log.pending_rows(max(found, default=-1) + 1, rows):
            for record in decode(pending_batch(self.log, taken, max_bytes).records):
                assert record.value == b"%d" % record.timestamp
                found[record.offset] = int(dict(record.headers)["headrace.scheduled.for"] or b"")
        assert found == fold(self.writes)[0]

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        target = int(self.log.end_offset * share)
        gone = self.log.schedule.ids_below(target)
        if gone:
            self.log.append_notes(cancelled(gone), 0, now_ms=self.now_ms)
            self.writes.append(Told(self.log.end_offset, {}, dict.fromkeys(gone, -1)))
        self.committed = self.log.end_offset  # what is deleted stays so, even if the note were taken back
        self.log.settle(self.committed)
        self.log.advance_start(target)

    # -- time, shape and crashes --------------------------------------------------------------------------------------

    @rule(ms=st.integers(1, 40_000))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def trim(self) -> None:
        """Retention, as a leader whose log is committed does it; twice, with what it asks for in between."""
        self.committed = self.log.end_offset
        self.log.settle(self.committed)
        self.log.apply_retention(self.now_ms)
        before = self.log.unwanted_before
        for producer in (-1, *self.log.schedule.held):
            waiting = self.log.schedule.waiting(producer)
            ids, _ = waiting.in_notes_before(before, 0, 1000)
            rows = [row for key in ids if (row := waiting.row(key)) is not None]
            parts = self.log.bodies([Due(due_ms, key, note) for key, due_ms, note, _ in rows], from_0=True)
            again = reparked(producer, zip(rows, parts, strict=True))
            if again:
                self.log.append_notes(again, 0, now_ms=self.now_ms)
                self.writes.append(Told(self.log.end_offset, {}, {}))
        self.log.settle(self.log.end_offset)
        self.committed = self.log.end_offset
        self.log.trim_soon()
        self.log.apply_retention(self.now_ms)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(checkpoint=st.booleans())
    def sync(self, checkpoint: bool) -> None:
        self.log.sync(checkpoint=checkpoint)

    @precondition(lambda self: self.end > self.committed)
    @rule(choice=st.randoms(use_true_random=False))
    def truncate(self, choice: random.Random) -> None:
        ends = [self.committed, *(write.end for write in self.writes if write.end > self.committed)]
        self.log.truncate_to(choice.choice(ends))
        self.forget()

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.open()

    @rule()
    def kill_and_start(self) -> None:
        self.shelf.files.close()
        self.open()
        self.forget()

    @rule(choice=st.randoms(use_true_random=False))
    def crash(self, choice: random.Random) -> None:
        self.disk.crash(choice)
        self.open()
        self.forget()

    def forget(self) -> None:
        end = self.log.end_offset
        self.writes = [write for write in self.writes if write.end <= end]
        self.committed = min(self.committed, end)
        if self.follower.end_offset > end:
            self.follower.truncate_to(end)
        for producer in PRODUCERS:
            known = self.log.producers.producers.get(producer)
            self.epochs[producer] = 0 if known is None else known.epoch

    # -- the follower -------------------------------------------------------------------------------------------------

    @rule(choice=st.randoms(use_true_random=False), batches=st.integers(1, 5), sync=st.booleans())
    def follow(self, choice: random.Random, batches: int, sync: bool) -> None:
        follower, log = self.follower, self.log
        if follower.end_offset < log.start_offset:
            follower.restart_at(log.start_offset)
        for _ in range(batches):
            if follower.end_offset < log.end_offset:
                found = log.read(follower.end_offset, 1, log.end_offset, at_least_one=True).load()
                (first,) = [header for _, header in walk(found)]
                if first.base_offset < follower.end_offset:
                    follower.restart_at(first.base_offset)
                follower.append_as_follower(memoryview(bytearray(found)), self.now_ms)
        if sync:
            follower.sync(checkpoint=choice.random() < 0.5)
        elif choice.random() < 0.2:
            follower.close()
            self.follower = self.opened(self.other_disk)[1]

    # -- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def the_schedule_is_what_was_written(self) -> None:
        assert schedule_of(self.log) == fold(self.writes)
        assert self.log.end_offset >= self.end

    @invariant()
    def so_is_that_of_the_follower(self) -> None:
        end = self.follower.end_offset
        if any(write.end == end for write in self.writes):
            found, expected = schedule_of(self.follower), fold([write for write in self.writes if write.end <= end])
            if not self.follower.start_offset or end == self.log.end_offset:
                assert found == expected
            else:  # it began behind notes whose records were let go, or come again before the leader's end
                assert found[0].items() <= expected[0].items()
                assert all(left.items() <= expected[1].get(who, {}).items() for who, left in found[1].items())


ScheduleMachine.TestCase.settings = settings(
    max_examples=3000 if SOAK else 60,
    stateful_step_count=60 if SOAK else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
TestScheduleMachine = ScheduleMachine.TestCase
