"""What a view shows is what a slow, obvious filter over all records shows: every codec, transactions, compaction gaps,
any place to start, restarts, and whatever the index knows by then."""

from __future__ import annotations

import random

import pytest

from headrace.log import tag_index, tag_search
from headrace.log.compaction import Compactor
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import segment_path
from headrace.log.tag_search import KeptBatches, Search, Wanted
from headrace.log.visible import closed
from headrace.model.tag_filter import MATCHES, TAG_HEADER, TagFilter
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import TRANSACTIONAL, read_header, walk
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch, iterate
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, new_shelf, open_log

TAGS = ["a", "b", "c", "d"]
CONFIG = TopicConfig(cleanup_policy=("compact",), segment_bytes=3000, tags=True)


@pytest.fixture(autouse=True)
def _small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tag_index, tag_search):
        monkeypatch.setattr(module, "CELL_BYTES", 256)


def tags_of(record: Record) -> list[str]:
    return [value.decode() for name, value in record.headers if name == TAG_HEADER and value is not None]


class Story:
    """A log that is written by chance, and what a reader with each isolation level may see of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimDisk()
        self.log = open_log(self.disk, CONFIG)
        self.aborted: set[int] = set()
        self.epochs = dict.fromkeys((7, 8), 0)
        self.sequences = dict.fromkeys((7, 8), 0)
        self.open: dict[int, list[int]] = {}

    def records(self) -> list[Record]:
        draw, tag = self.random, self.random.choice(TAGS)
        found = []
        for at in range(draw.randrange(1, 12)):
            tags = [tag] if draw.random() < 0.6 else draw.sample(TAGS, draw.randrange(3))
            headers = tuple((TAG_HEADER, name.encode()) for name in tags)
            found.append(Record(at, NOW + draw.randrange(50), b"%d" % draw.randrange(30), b"v" * 20, headers))
        return found

    def write(self) -> None:
        producer = self.random.choice([None, None, *self.epochs])
        codec = self.random.randrange(5)
        if producer is None:
            self.log.append(memoryview(encode_batch(self.records(), codec=codec)), 0, now_ms=NOW)
            return
        records = self.records()
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=self.epochs[producer],
            base_sequence=self.sequences[producer],
            attributes=TRANSACTIONAL,
        )
        self.sequences[producer] += len(records)
        first = self.log.append(memoryview(batch), 0, now_ms=NOW, transactional=True).base_offset
        self.open.setdefault(producer, []).extend(range(first, first + len(records)))

    def end(self) -> None:
        for producer in [producer for producer in self.open if self.random.random() < 0.7]:
            commit = self.random.random() < 0.5
            self.epochs[producer] += 1
            self.sequences[producer] = 0
            offsets = self.open.pop(producer)
            self.aborted.update([] if commit else offsets)
            self.log.append_marker(producer, self.epochs[producer], 0, commit, 0, strict=True, now_ms=NOW)

    def restart(self) -> None:
        self.log.close()
        self.log = open_log(self.disk, CONFIG)

    def compact(self) -> None:
        self.log.roll(NOW)
        self.log.settle(self.log.end_offset)
        Compactor(new_shelf(self.disk), step_bytes=700).compact(self.log, NOW)

    def expected(self, filter_: TagFilter, offset: int, below: int, *, stable: bool) -> list[Record]:
        found = []
        for segment in self.log.segments:
            data = segment.peek(0, segment.size, wait=True) if segment.size else b""
            for at, header in walk(data):
                if not header.is_control and header.record_count:
                    found += decode(data, at)
        return [
            record
            for record in found
            if offset <= record.offset < below
            and filter_.accepts(tags_of(record))
            and not (stable and record.offset in self.aborted)
        ]

    def seen(self, wanted: Wanted, kept: KeptBatches, offset: int, below: int, *, stable: bool) -> list[Record]:
        """As a client reads it, in answers of any size."""
        found: list[Record] = []
        for _ in range(10_000):
            if offset >= below:
                return found
            search = Search(self.log, "log", wanted, kept)
            part = search.run(offset, below, self.random.choice([1, 300, 100_000]), stable=stable)
            answer = bytearray().join(part.batches)
            if part.at_end or not answer:
                last = len(answer) - len(part.batches[-1]) if part.batches else 0
                answer = closed(answer, last, offset, part.next_offset, 0)
            position = offset
            for at, header in walk(answer):
                for record in decode(answer, at):
                    if record.offset >= offset:
                        position = record.offset + 1
                        found += [] if header.is_control else [record]
                assert header.next_offset > offset
            assert position > offset, "an answer without a record"
            assert not part.at_end or position == below
            offset = read_header(answer, [at for at, _ in walk(answer)][-1]).next_offset
        raise AssertionError("the end was never reached")


@pytest.mark.parametrize("seed", range(40))
def test_a_view_shows_what_a_slow_filter_shows(seed: int) -> None:
    story = Story(seed)
    kept = KeptBatches(3000)
    acts = [story.write] * 12 + [story.end] * 4 + [story.restart, story.compact]
    for _ in range(8):
        for _ in range(story.random.randrange(5, 25)):
            story.random.choice(acts)()
        end = story.log.end_offset
        unstable = story.log.first_unstable_offset(end)
        for _ in range(6):
            match = story.random.choice(MATCHES)
            filter_ = TagFilter(tuple(story.random.sample([*TAGS, "nobody"], story.random.randrange(1, 3))), match)
            stable = story.random.random() < 0.5
            below = end if not stable or unstable is None else unstable
            offset = story.random.choice([0, story.random.randrange(end + 1)])
            found = story.seen(Wanted.of(filter_), kept, offset, below, stable=stable)
            assert found == story.expected(filter_, offset, below, stable=stable), (seed, filter_, stable, offset)


def tagged_log(disk: SimDisk, batches: int = 60) -> PartitionLog:
    log = open_log(disk, TopicConfig(segment_bytes=3000, tags=True))
    for at in range(batches):
        headers = ((TAG_HEADER, b"rare" if at == 40 else b"common"),)
        log.append(memoryview(encode_batch([Record(0, NOW, None, b"v" * 60, headers)])), 0, now_ms=NOW)
    return log


def search(log: PartitionLog, tag: str = "rare", match: str = "any") -> tag_search.Found:
    wanted = Wanted.of(TagFilter((tag,), match))
    return Search(log, "log", wanted, KeptBatches()).run(0, log.end_offset, 1 << 20, stable=False)


def test_a_second_reader_opens_only_cells_that_may_match() -> None:
    log = tagged_log(SimDisk())
    first, second = search(log), search(log)
    assert [record.offset for part in second.batches for record in iterate(part)] == [40]
    assert second.scanned_bytes == first.scanned_bytes == log.size_bytes
    assert second.opened_bytes < first.opened_bytes / 4
    assert search(log, "nobody").opened_bytes < first.opened_bytes / 4


def test_the_index_of_a_sealed_segment_outlives_a_restart() -> None:
    disk = SimDisk()
    log = tagged_log(disk)
    first = search(log)
    log.close()
    assert disk.exists(segment_path(FOLDER, 0, ".tags"))
    log = open_log(disk, TopicConfig(segment_bytes=3000, tags=True))
    assert search(log).opened_bytes < first.opened_bytes / 2
    path = segment_path(FOLDER, 0, ".tags")
    damaged = bytearray(disk.read_bytes(path))
    damaged[30] ^= 1
    disk.write_atomic(path, damaged)
    log.close()
    log = open_log(disk, TopicConfig(segment_bytes=3000, tags=True))
    assert [record.offset for part in search(log).batches for record in iterate(part)] == [40]


def test_an_index_goes_with_what_it_tells_of() -> None:
    disk = SimDisk()
    log = tagged_log(disk)
    search(log)
    log.truncate_to(0)
    assert not [name for name in disk.list_dir(FOLDER) if name.endswith(".tags")]
    for _ in range(60):
        batch = encode_batch([Record(0, NOW, None, b"v" * 60, ((TAG_HEADER, b"rare"),))])
        log.append(memoryview(batch), 0, now_ms=NOW)
    assert len([record for part in search(log).batches for record in iterate(part)]) == 60
    log.apply_retention(NOW + 15 * 86_400_000)
    assert not [name for name in disk.list_dir(FOLDER) if name.endswith(".tags")]


def test_more_tags_than_an_index_has_bits_for_are_found_all_the_same() -> None:
    log = open_log(SimDisk(), TopicConfig(tags=True))
    for at in range(300):
        batch = encode_batch([Record(0, NOW, None, b"", ((TAG_HEADER, b"t%d" % at),))])
        log.append(memoryview(batch), 0, now_ms=NOW)
    log.roll(NOW)
    for _ in range(2):
        for at in (0, 61, 62, 299):
            found = search(log, f"t{at}")
            assert [record.offset for part in found.batches for record in iterate(part)] == [at]
        assert sum(read_header(part).record_count for part in search(log, "t7", "none").batches) == 299


def test_a_batch_that_cannot_be_opened_is_given_as_it_is() -> None:
    log = open_log(SimDisk(), TopicConfig(tags=True))
    batch = encode_batch([Record(0, NOW, None, b"v" * 100, ())], codec=4)
    log.append(memoryview(batch), 0, now_ms=NOW)
    segment = log.segments[0]
    with segment.file as file:
        file.pwrite(b"\xff\xff", 80)
    damaged = segment.peek(0, segment.size, wait=True)
    assert [bytes(part) for part in search(log).batches] == [damaged]


def test_kept_batches_make_room() -> None:
    kept = KeptBatches(2000)
    wanted = Wanted((b"a",), 0)
    for at in range(10):
        kept.keep(("log", at, 0, 0, wanted), bytes(300))
    assert kept.get(("log", 0, 0, 0, wanted)) is None
    assert kept.get(("log", 9, 0, 0, wanted)) == (bytes(300),)
