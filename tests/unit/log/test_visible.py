"""What a consumer is given of batches that have lost records: never a slice without a record, and a way to the end.

`Reader` does what clients do with an answer: it takes the records from its offset on, leaves out control batches, and
goes on after the last offset of the last batch. Like librdkafka it fails on an answer without any record.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.partition_log import PartitionLog
from headrace.log.visible import is_thinned, visible
from headrace.model.topic_config import TopicConfig
from headrace.wire import records as wire_records
from headrace.wire.batches import Buffer, crc_ok, read_header, walk
from headrace.wire.end_markers import read_marker
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, append, open_log
from tests.unit.log.test_dedup import CONFIG, put


class Reader:
    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.position = offset
        """What an application would commit: the offset after the newest record or control record that it was given."""
        self.values: list[tuple[int, bytes | None]] = []

    def take(self, answer: Buffer) -> None:
        seen = 0
        for at, header in walk(answer):
            assert crc_ok(answer, at, header)
            assert header.record_count, "kafka-go panics on a batch without records"
            for record in decode(answer, at):
                seen += 1
                if record.offset < self.offset:
                    continue
                self.position = record.offset + 1
                if not header.is_control:
                    self.values.append((record.offset, record.value))
            self.offset = max(self.offset, header.next_offset)
        assert seen, "an answer without a record"

    def read_all(self, log: PartitionLog, max_bytes: int = 1 << 20) -> Reader:
        for _ in range(1000):
            if self.offset >= log.end_offset:
                return self
            part = log.read(self.offset, max_bytes, log.end_offset, at_least_one=True, for_consumer=True)
            before = self.offset
            self.take(part.load())
            assert self.offset > before, "no progress"
        raise AssertionError("the end was never reached")


def values(log: PartitionLog) -> list[bytes | None]:
    return [value for _, value in Reader().read_all(log).values]


def test_single_duplicates_are_passed_in_one_answer_and_the_position_reaches_the_end() -> None:
    log = open_log(SimDisk(), CONFIG)
    for _ in range(41):
        put(log, b"same")
    reader = Reader()
    reader.take(log.read(0, 1 << 20, log.end_offset, at_least_one=True, for_consumer=True).load())
    assert reader.values == [(0, b"same")]
    assert reader.position == reader.offset == log.end_offset == 41


def test_a_reader_behind_the_only_record_is_given_one_marker_over_the_rest() -> None:
    log = open_log(SimDisk(), CONFIG)
    for _ in range(41):
        put(log, b"same")
    answer = log.read(1, 1 << 20, log.end_offset, at_least_one=True, for_consumer=True).load()
    assert len(list(walk(answer))) == 1
    header = read_header(answer)
    assert (header.base_offset, header.next_offset, header.record_count) == (1, 41, 1)
    assert header.is_control
    assert not header.is_transactional
    assert header.producer_id == -1
    assert read_marker(answer) is not None
    assert len(answer) < 100


def test_records_dropped_from_the_end_of_a_batch_are_covered_by_a_marker() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    put(log, b"b", b"a", b"a")
    reader = Reader().read_all(log)
    assert reader.values == [(0, b"a"), (1, b"b")]
    assert reader.position == 4


def test_two_emptied_batches_in_a_row_at_the_end_of_a_segment_do_not_hide_the_next_one() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    put(log, b"a")
    put(log, b"a")
    log.roll(NOW)
    put(log, b"b")
    assert Reader(1).read_all(log).values == [(3, b"b")]
    assert values(log) == [b"a", b"b"]


def test_a_batch_that_is_given_in_part_is_not_opened_when_more_follows() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    put(log, b"b", b"a")
    put(log, b"c")
    stored = bytes(log.read(0, 1 << 20, log.end_offset, at_least_one=True).load())
    assert visible(stored, 0, at_end=False) is stored


def test_replicas_are_given_what_is_stored() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    put(log, b"a")
    batches = list(walk(log.read(0, 1 << 20, log.end_offset, at_least_one=True).load()))
    assert [header.record_count for _, header in batches] == [1, 0]


def test_a_log_without_such_batches_gives_its_bytes_as_they_are() -> None:
    log = open_log(SimDisk())
    put(log, b"a")
    assert not log.thinned
    part = log.read(0, 1 << 20, log.end_offset, at_least_one=True, for_consumer=True)
    assert part._bounds is None


def test_a_start_knows_what_was_dropped_before_it() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    put(log, b"a")
    put(log, b"a")
    log.close()
    for config in (CONFIG, TopicConfig()):
        again = open_log(disk, config)
        assert again.thinned
        assert Reader().read_all(again).position == 2
        again.close()


def test_a_start_after_a_crash_knows_it_too() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    put(log, b"a")
    put(log, b"a")
    log.abandon()
    again = open_log(disk, TopicConfig())
    assert again.thinned
    assert Reader().read_all(again).position == 2


def test_a_follower_knows_it_from_what_its_leader_sends() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    put(log, b"a")
    follower = open_log(SimDisk(), TopicConfig(), FOLDER)
    stored = log.read(0, 1 << 20, log.end_offset, at_least_one=True).load()
    taken = follower.append_as_follower(memoryview(stored), NOW)
    assert taken == read_header(stored).size, "the emptied batch has no bytes for consumers"
    assert Reader().read_all(follower).position == 2


def test_waiting_readers_are_told_of_no_bytes_by_a_duplicate() -> None:
    log = open_log(SimDisk(), CONFIG)
    assert put(log, b"a").visible_bytes == log.size_bytes
    assert put(log, b"a").visible_bytes == 0
    two = put(log, b"b", b"a").visible_bytes
    assert two == read_header(log.read(2, 1 << 20, 4, at_least_one=True).load()).size


def test_a_batch_that_opens_into_much_is_looked_into_elsewhere() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    records = [Record(at, NOW, b"k", bytes(1 << 20), (("headrace.id", name),)) for at, name in enumerate((b"b", b"a"))]
    append(log, memoryview(encode_batch(records, codec=4)))
    found = log.read(1, 1 << 20, log.end_offset, at_least_one=True, for_consumer=True)
    assert found.load_cached() is None
    (_, whole), (_, marker) = walk(found.load())
    assert (whole.base_offset, whole.last_offset, marker.last_offset) == (1, 1, 2)


def batch_with(base: int, kept: list[bool]) -> bytes:
    """As deduplication and compaction leave it: `kept` says which of its offsets have a record."""
    records = [Record(base + at, NOW, b"k", b"%d" % (base + at)) for at in range(len(kept))]
    whole = encode_batch(records, base_offset=base)
    if all(kept):
        return bytes(whole)
    if not any(kept):
        return bytes(wire_records.emptied_batch(read_header(whole)))
    header, section = wire_records.open_batch(whole)
    return bytes(wire_records.filtered_batch(header, section, kept))


@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=5), st.integers(0, 20), st.booleans()
)
def test_every_record_is_given_once_in_its_place_and_every_answer_has_one(
    batches: list[list[bool]], skipped: int, at_end: bool
) -> None:
    stored, base, wanted = b"", 0, list[tuple[int, bytes | None]]()
    for kept in batches:
        stored += batch_with(base, kept)
        wanted += [(base + at, b"%d" % (base + at)) for at, is_kept in enumerate(kept) if is_kept]
        base += len(kept)
    offset = min(skipped, base - 1)
    while read_header(stored).next_offset <= offset:  # a slice begins with the batch that has the offset
        stored = stored[read_header(stored).size :]
    reader = Reader(offset)
    reader.take(visible(stored, offset, at_end=at_end))
    assert reader.values == [one for one in wanted if one[0] >= offset]
    if at_end or not reader.values:
        assert reader.position == reader.offset == base
    else:
        assert reader.position <= reader.offset <= base, "what is left has no records"


def test_a_batch_lacks_records_if_it_has_fewer_than_offsets() -> None:
    assert not is_thinned(read_header(batch_with(5, [True, True])))
    assert is_thinned(read_header(batch_with(5, [True, False])))
    assert is_thinned(read_header(batch_with(5, [False, False])))
