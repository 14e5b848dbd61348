"""Append: stamped in place, one write, and nothing changes when it is refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import CONTROL, LOG_APPEND_TIME, crc_ok, read_header
from headrace.wire.errors import ErrorCode, InvalidRecords, KafkaError
from headrace.wire.records import Record, encode_batch
from sim.disk import SimDisk
from tests.unit.log.batches import NOW, batch, from_producer, offsets, open_log, read_all


def refused(log: object, records: memoryview, **options: object) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        log.append(records, 0, now_ms=NOW, **options)  # type: ignore[attr-defined]
    return error.value.code


def test_offsets_and_leader_epoch_are_stamped_and_the_rest_is_stored_as_sent() -> None:
    log = open_log(SimDisk())
    first = log.append(batch(3), 5, now_ms=NOW)
    second = log.append(batch(2), 5, now_ms=NOW)
    assert (first.base_offset, first.last_offset, first.append_time_ms, first.duplicate) == (0, 2, -1, False)
    assert (second.base_offset, second.last_offset) == (3, 4)
    data = log.read(3, 1000, 5, at_least_one=True).load()
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (3, 5)
    assert data[16:] == bytes(batch(2))[16:]
    assert log.epochs.entries == [(5, 0)]


def test_several_batches_go_in_with_one_write_and_following_offsets() -> None:
    log = open_log(SimDisk())
    both = bytearray(batch(3)) + bytearray(batch(2))
    appended = log.append(memoryview(both), 0, now_ms=NOW)
    assert (appended.base_offset, appended.last_offset) == (0, 4)
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_log_append_time_dates_the_batch_anew_and_its_crc_is_right() -> None:
    log = open_log(SimDisk(), TopicConfig(log_append_time=True))
    appended = log.append(batch(2, at=5), 0, now_ms=NOW)
    assert appended.append_time_ms == NOW
    data = log.read(0, 1000, 2, at_least_one=True).load()
    header = read_header(data)
    assert header.attributes & LOG_APPEND_TIME
    assert crc_ok(data, 0, header)
    assert [record.timestamp for record in read_all(log)] == [NOW, NOW]
    assert log.find_time(NOW, 2) == (0, NOW)


def test_what_a_client_may_not_send_is_refused_and_leaves_no_trace() -> None:
    config = TopicConfig(max_message_bytes=200, timestamp_after_max_ms=1000, timestamp_before_max_ms=1000)
    log = open_log(SimDisk(), config)
    broken = batch()
    broken[70] ^= 1
    assert refused(log, broken) is ErrorCode.corrupt_message
    assert refused(log, batch()[:50]) is ErrorCode.corrupt_message
    assert refused(log, batch()[:0]) is ErrorCode.invalid_record
    assert refused(log, batch(value=b"x" * 200)) is ErrorCode.message_too_large
    assert refused(log, batch(at=NOW + 1001)) is ErrorCode.invalid_timestamp
    assert refused(log, batch(at=NOW - 1001)) is ErrorCode.invalid_timestamp
    assert refused(log, batch(attributes=LOG_APPEND_TIME)) is ErrorCode.invalid_timestamp
    assert refused(log, batch(attributes=CONTROL)) is ErrorCode.invalid_record
    assert (log.end_offset, log.size_bytes) == (0, 0)
    log.append(batch(attributes=CONTROL), 0, now_ms=NOW, internal=True)
    assert log.end_offset == 1


def test_every_record_counts_and_those_of_a_wrong_time_are_named() -> None:
    log = open_log(SimDisk(), TopicConfig(timestamp_after_max_ms=1000, timestamp_before_max_ms=1000))
    at = [NOW, NOW - 1001, NOW + 1001, -1, NOW - 1000, NOW + 1000]
    records = encode_batch([Record(place, time, b"k", b"v") for place, time in enumerate(at)])
    with pytest.raises(InvalidRecords) as error:
        log.append(memoryview(records), 0, now_ms=NOW)
    assert (error.value.code, error.value.places) == (ErrorCode.invalid_timestamp, [1, 2])
    assert log.end_offset == 0
    good = encode_batch([Record(place, at[time], b"k", b"v") for place, time in enumerate((0, 3, 4, 5))])
    assert log.append(memoryview(good), 0, now_ms=NOW).last_offset == 3


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    log = open_log(SimDisk(), TopicConfig(cleanup_policy=("compact",)))
    assert refused(log, batch(key=None)) is ErrorCode.invalid_record
    log.append(batch(key=b""), 0, now_ms=NOW)
    assert log.end_offset == 1


def test_a_retry_is_answered_with_its_first_offset_and_stored_once() -> None:
    log = open_log(SimDisk())
    for sequence in range(5):
        log.append(from_producer(sequence), 0, now_ms=NOW)
    again = log.append(from_producer(1), 0, now_ms=NOW)
    assert (again.base_offset, again.last_offset, again.duplicate) == (1, 1, True)
    assert log.end_offset == 5


def test_a_gap_and_a_fenced_producer_are_told_apart() -> None:
    log = open_log(SimDisk())
    log.append(from_producer(0, epoch=1), 0, now_ms=NOW)
    assert refused(log, from_producer(2, epoch=1)) is ErrorCode.out_of_order_sequence_number
    assert refused(log, from_producer(1, epoch=0)) is ErrorCode.invalid_producer_epoch
    assert refused(log, from_producer(1, epoch=2)) is ErrorCode.out_of_order_sequence_number
    log.append(from_producer(0, epoch=2), 0, now_ms=NOW)
    assert log.end_offset == 2


def test_two_batches_of_one_producer_in_one_write_must_follow_each_other() -> None:
    log = open_log(SimDisk())
    torn = bytearray(from_producer(0)) + bytearray(from_producer(2))
    assert refused(log, memoryview(torn)) is ErrorCode.out_of_order_sequence_number
    assert log.end_offset == 0
    good = bytearray(from_producer(0)) + bytearray(from_producer(1))
    log.append(memoryview(good), 0, now_ms=NOW)
    assert log.append(from_producer(1), 0, now_ms=NOW).base_offset == 1


def test_a_full_disk_refuses_one_append_and_takes_the_next_once_there_is_room() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.append(batch(), 0, now_ms=NOW)
    for room in range(0, 70, 10):
        disk.room_bytes = room
        assert refused(log, from_producer(0)) is ErrorCode.kafka_storage_error
        assert offsets(log) == [0]
    disk.room_bytes = None
    assert log.append(from_producer(0), 0, now_ms=NOW).base_offset == 1
    assert offsets(log) == [0, 1]


def test_segments_roll_by_size_and_by_age() -> None:
    size = len(batch())
    log = open_log(SimDisk(), TopicConfig(segment_bytes=2 * size, segment_ms=1000))
    for _ in range(5):
        log.append(batch(), 0, now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    log.append(batch(), 0, now_ms=NOW + 1000)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 5]
    assert not log.roll_if_due(NOW + 1999)
    assert log.roll_if_due(NOW + 2000)
    assert not log.roll_if_due(NOW + 9000), "an empty segment does not age"
    assert offsets(log) == [0, 1, 2, 3, 4, 5]


def test_a_batch_larger_than_a_segment_has_one_for_itself() -> None:
    log = open_log(SimDisk(), TopicConfig(segment_bytes=100))
    for _ in range(3):
        log.append(batch(value=b"x" * 300), 0, now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_a_follower_stores_batches_as_its_leader_has_them() -> None:
    leader, follower = open_log(SimDisk()), open_log(SimDisk())
    leader.append(from_producer(0, 2), 3, now_ms=NOW)
    leader.append(from_producer(2, 2), 4, now_ms=NOW)
    data = bytearray(leader.read(0, 10_000, 4, at_least_one=True).load())
    follower.append_as_follower(memoryview(data + data[:70]))
    assert follower.read(0, 10_000, 4, at_least_one=True).load() == data
    assert follower.epochs.entries == [(3, 0), (4, 2)]
    assert follower.append(from_producer(2, 2), 5, now_ms=NOW).duplicate
    with pytest.raises(KafkaError):
        follower.append_as_follower(memoryview(data))


def test_a_follower_refuses_a_batch_that_does_not_match_its_crc() -> None:
    log = open_log(SimDisk())
    broken = batch()
    broken[65] ^= 1
    with pytest.raises(KafkaError) as error:
        log.append_as_follower(broken)
    assert error.value.code is ErrorCode.corrupt_message
    assert log.end_offset == 0


def test_a_failed_sync_takes_the_log_offline_for_good() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.append(batch(), 0, now_ms=NOW)
    disk.fail_syncs = 1
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            log.sync()
    assert log.synced_offset == 0
    assert refused(log, batch()) is ErrorCode.kafka_storage_error


def test_new_settings_count_from_the_next_append_on() -> None:
    log = open_log(SimDisk())
    log.reconfigure(replace(log.config, max_message_bytes=10))
    assert refused(log, batch()) is ErrorCode.message_too_large
