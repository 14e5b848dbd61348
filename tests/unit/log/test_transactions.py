"""Transactions in one partition's log: what is open, what ends it, what is refused, and what survives."""

from __future__ import annotations

import pytest

from headrace.log.appended import Appended
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import segment_path
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import CONTROL, TRANSACTIONAL, read_header
from headrace.wire.end_markers import EndMarker, encode_marker, read_marker
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, batch, from_producer, open_log

DATA_BYTES = 72  # of the smallest batch here


def transactional(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> memoryview:
    records = [Record(i, NOW, b"k", b"v") for i in range(count)]
    return memoryview(
        encode_batch(
            records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, attributes=TRANSACTIONAL
        )
    )


def write(log: PartitionLog, sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> Appended:
    records = transactional(sequence, count, producer=producer, epoch=epoch)
    return log.append(records, 0, now_ms=NOW, transactional=True)


def end(
    log: PartitionLog, commit: bool, *, producer: int = 7, epoch: int = 1, coordinator: int = 3, strict: bool = True
) -> Appended:
    return log.append_marker(producer, epoch, coordinator, commit, 0, strict=strict, now_ms=NOW)


def refusal(log: PartitionLog, records: memoryview, *, transactional: bool = True) -> ErrorCode:
    before = log.end_offset
    with pytest.raises(KafkaError) as refused:
        log.append(records, 0, now_ms=NOW, transactional=transactional)
    assert log.end_offset == before
    return refused.value.code


def end_refusal(log: PartitionLog, *, epoch: int, coordinator: int = 3, strict: bool = True) -> ErrorCode:
    before = log.end_offset
    with pytest.raises(KafkaError) as refused:
        end(log, True, epoch=epoch, coordinator=coordinator, strict=strict)
    assert log.end_offset == before
    return refused.value.code


# -- markers as bytes -------------------------------------------------------------------------------------------------


def test_a_marker_is_a_control_batch_with_kafkas_key_and_value() -> None:
    encoded = encode_marker(EndMarker(True, 5), 7, 2, NOW)
    assert len(encoded) == 78
    header = read_header(encoded)
    assert header.attributes == CONTROL | TRANSACTIONAL
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    (record,) = decode(encoded)
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\0\5")
    assert read_marker(encoded) == EndMarker(True, 5)
    assert read_marker(encode_marker(EndMarker(False, 0), 7, 2, NOW)) == EndMarker(False, 0)


def test_other_control_batches_are_no_markers() -> None:
    leader_change = encode_batch([Record(0, NOW, b"\0\0\0\2", b"\0\0\0\0\0\0")], attributes=CONTROL)
    assert read_marker(leader_change) is None
    assert read_marker(encode_batch([Record(0, NOW, b"\0", b"")], attributes=CONTROL)) is None
    assert read_marker(encode_batch([Record(0, NOW, None, None)], attributes=CONTROL)) is None


# -- what may be written ----------------------------------------------------------------------------------------------


def test_a_transactional_batch_needs_a_transactional_request_and_a_producer() -> None:
    log = open_log(SimDisk())
    no_id = refusal(log, transactional(0), transactional=False)
    assert no_id is ErrorCode.transactional_id_authorization_failed, "what Kafka says to it"
    assert refusal(log, batch(attributes=TRANSACTIONAL)) is ErrorCode.invalid_record
    assert refusal(log, batch(attributes=CONTROL)) is ErrorCode.invalid_record
    assert write(log, 0).base_offset == 0


def test_a_producer_writes_nothing_else_while_its_transaction_is_open() -> None:
    log = open_log(SimDisk())
    write(log, 0)
    assert refusal(log, from_producer(1)) is ErrorCode.invalid_txn_state
    both = memoryview(bytearray(transactional(1)) + bytearray(from_producer(2)))
    assert refusal(log, both) is ErrorCode.invalid_txn_state
    log.append(from_producer(0, producer=8), 0, now_ms=NOW)
    end(log, True)
    assert log.append(from_producer(0, epoch=1), 0, now_ms=NOW).base_offset == 3


def test_after_a_marker_of_a_higher_epoch_late_records_are_fenced_and_sequences_start_over() -> None:
    log = open_log(SimDisk())
    write(log, 0, 3)
    end(log, True)
    assert refusal(log, transactional(3)) is ErrorCode.invalid_producer_epoch
    assert refusal(log, transactional(1, epoch=1)) is ErrorCode.out_of_order_sequence_number
    assert write(log, 0, epoch=1).base_offset == 4
    assert write(log, 0, epoch=1).duplicate


def test_a_retry_of_the_last_batch_is_still_known_after_a_marker_of_the_same_epoch() -> None:
    log = open_log(SimDisk())
    write(log, 0)
    end(log, True, epoch=0, strict=False)
    again = write(log, 0)
    assert (again.base_offset, again.duplicate) == (0, True)
    assert not log.has_open_transaction(7, 0)
    assert write(log, 1).base_offset == 2
    assert log.has_open_transaction(7, 0)


def test_offsets_of_a_group_enter_a_transaction_without_sequences() -> None:
    log = open_log(SimDisk())

    def commit_offsets(epoch: int) -> Appended:
        encoded = encode_batch(
            [Record(0, NOW, b"k", b"v")], producer_id=7, producer_epoch=epoch, attributes=TRANSACTIONAL
        )
        return log.append(memoryview(encoded), 0, now_ms=NOW, internal=True, transactional=True)

    for epoch in range(3):
        assert [commit_offsets(epoch).duplicate for _ in range(3)] == [False] * 3
        end(log, epoch != 1, epoch=epoch + 1)
    assert log.aborted(0, 12) == [(7, 4)]
    with pytest.raises(KafkaError) as refused:
        commit_offsets(2)
    assert refused.value.code is ErrorCode.invalid_producer_epoch


# -- markers ----------------------------------------------------------------------------------------------------------


def test_a_repeated_marker_is_not_written_again() -> None:
    log = open_log(SimDisk())
    write(log, 0)
    assert end(log, True) == Appended(1, 1, -1, 0, False, 78)
    assert end(log, True) == Appended(1, 1, -1, 0, True, 0)
    assert end(log, True, coordinator=4).duplicate, "the coordinator moved and does its work again"
    write(log, 0, epoch=1)
    assert end_refusal(log, epoch=1) is ErrorCode.invalid_producer_epoch, "that would end the next transaction"
    assert log.has_open_transaction(7, 1)


def test_under_the_old_rules_a_marker_has_the_epoch_of_its_records() -> None:
    log = open_log(SimDisk())
    write(log, 0)
    assert not end(log, False, epoch=0, strict=False).duplicate
    assert end(log, False, epoch=0, strict=False).duplicate
    assert not end(log, False, epoch=0, coordinator=4, strict=False).duplicate
    write(log, 1)
    assert not end(log, True, epoch=0, coordinator=4, strict=False).duplicate
    assert log.aborted(0, 9) == [(7, 0)]


def test_a_marker_may_not_have_a_lower_epoch_nor_come_from_an_earlier_coordinator() -> None:
    log = open_log(SimDisk())
    write(log, 0, epoch=5)
    assert end_refusal(log, epoch=4, strict=False) is ErrorCode.invalid_producer_epoch
    assert end_refusal(log, epoch=5) is ErrorCode.invalid_producer_epoch
    end(log, True, epoch=6, coordinator=3)
    write(log, 0, epoch=6)
    assert end_refusal(log, epoch=7, coordinator=2) is ErrorCode.transaction_coordinator_fenced
    assert log.has_open_transaction(7, 6)


def test_a_marker_for_a_partition_without_records_fences_all_the_same() -> None:
    log = open_log(SimDisk())
    end(log, False)
    assert log.aborted(0, 9) == []
    assert log.first_unstable_offset(1) is None
    assert refusal(log, transactional(0)) is ErrorCode.invalid_producer_epoch


# -- how far it is stable ---------------------------------------------------------------------------------------------


def test_the_log_is_stable_up_to_the_oldest_transaction_that_is_open_or_whose_end_is_not_committed() -> None:
    log = open_log(SimDisk())
    log.append(batch(2), 0, now_ms=NOW)
    assert log.first_unstable_offset(2) is None
    write(log, 0, producer=7)  # 2
    write(log, 0, producer=8)  # 3
    assert log.first_unstable_offset(4) == 2
    end(log, True, producer=7)  # 4
    assert log.first_unstable_offset(4) == 2, "the marker is not committed"
    assert log.first_unstable_offset(5) == 3
    write(log, 0, producer=7, epoch=1)  # 5
    end(log, False, producer=8)  # 6
    assert log.first_unstable_offset(7) == 5
    end(log, True, producer=7, epoch=2)
    assert log.first_unstable_offset(8) is None


def test_only_aborted_transactions_that_a_reader_meets_are_named() -> None:
    log = open_log(SimDisk())
    write(log, 0, 2, producer=7)  # 0, 1
    write(log, 0, 2, producer=8)  # 2, 3
    end(log, False, producer=8)  # 4
    end(log, False, producer=7)  # 5
    write(log, 0, producer=9)  # 6
    end(log, True, producer=9)  # 7
    write(log, 0, producer=8, epoch=1)  # 8
    end(log, False, producer=8, epoch=2)  # 9
    assert log.aborted(0, 10) == [(8, 2), (7, 0), (8, 8)]
    assert log.aborted(0, 2) == [(7, 0)]
    assert log.aborted(5, 8) == [(7, 0)], "its records may lie behind, its marker does not"
    assert log.aborted(6, 8) == []
    assert log.aborted(6, 9) == [(8, 8)]


def test_producers_are_described() -> None:
    log = open_log(SimDisk())
    write(log, 0, 2, producer=7)
    write(log, 0, 3, producer=8)
    end(log, True, producer=8, coordinator=4)
    assert log.producers_described() == [(7, 0, 1, NOW, -1, 0), (8, 1, -1, NOW, 4, -1)]


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    log = open_log(SimDisk())
    write(log, 0, producer=7)
    write(log, 0, producer=8)
    end(log, True, producer=8)
    log.apply_retention(NOW + 48 * 3600 * 1000)
    assert list(log.producers.producers) == [7]
    assert log.first_unstable_offset(9) == 0


# -- what survives ----------------------------------------------------------------------------------------------------


def story(log: PartitionLog) -> None:
    """7 aborts, 8 stays open, 9 commits, and 7 writes on."""
    write(log, 0, 2, producer=7)  # 0, 1
    write(log, 0, 2, producer=8)  # 2, 3
    end(log, False, producer=7)  # 4
    write(log, 0, 2, producer=9)  # 5, 6
    write(log, 0, 2, producer=7, epoch=1)  # 7, 8
    end(log, True, producer=9)  # 9
    end(log, False, producer=7, epoch=2)  # 10


def check_story(log: PartitionLog) -> None:
    assert log.end_offset == 11
    assert log.aborted(0, 11) == [(7, 0), (7, 7)]
    assert log.aborted(5, 11) == [(7, 7)]
    assert log.first_unstable_offset(11) == 2
    assert [(f.producer_id, f.epoch, f.coordinator_epoch, f.open_since) for f in log.producers_described()] == [
        (7, 2, 3, -1),
        (8, 0, -1, 2),
        (9, 1, 3, -1),
    ]
    assert refusal(log, transactional(0, producer=7, epoch=1)) is ErrorCode.invalid_producer_epoch
    assert end(log, False, producer=8).base_offset == 11
    assert log.aborted(0, 12) == [(7, 0), (7, 7), (8, 2)]


SMALL = TopicConfig(segment_bytes=2 * DATA_BYTES)


@pytest.mark.parametrize("config", [TopicConfig(), SMALL])
@pytest.mark.parametrize("how", ["stop", "kill", "kill after a sync", "kill without snapshots", "cut"])
def test_transactions_survive(config: TopicConfig, how: str) -> None:
    disk = SimDisk()
    log = open_log(disk, config)
    story(log)
    if how == "stop":
        log.close()
    elif how == "kill after a sync":
        log.sync(checkpoint=True)
    elif how == "kill without snapshots":
        for name in disk.list_dir(FOLDER):
            if name.endswith(".snapshot"):
                disk.remove(FOLDER / name)
    elif how == "cut":
        write(log, 0, producer=9, epoch=1)
        end(log, False, producer=8)
        end(log, False, producer=9, epoch=2)
        log.sync(checkpoint=True)
        log.truncate_to(11)
        check_story(log)
        log.truncate_to(11)
    check_story(open_log(disk, config))


def test_a_damaged_file_of_aborted_transactions_is_made_anew() -> None:
    disk = SimDisk()
    log = open_log(disk, SMALL)
    story(log)
    log.close()
    indexes = [name for name in disk.list_dir(FOLDER) if name.endswith(".txnindex")]
    assert len(indexes) == 2
    disk.flip_bit(FOLDER / indexes[0], 100)
    check_story(open_log(disk, SMALL))


def test_aborts_that_a_crash_took_from_the_log_go_from_their_file_too() -> None:
    disk = SimDisk()
    log = open_log(disk)
    write(log, 0)
    log.sync(checkpoint=True)
    end(log, False)
    log.sync()
    assert disk.file_size(segment_path(FOLDER, 0, ".txnindex")) == 36
    disk.open(segment_path(FOLDER, 0, ".log")).truncate(len(transactional(0)))
    log = open_log(disk)
    assert (log.end_offset, log.aborted(0, 9), log.first_unstable_offset(1)) == (1, [], 0)
    end(log, True)
    write(log, 0, epoch=1)
    end(log, True, epoch=2)
    log.close()
    assert open_log(disk).aborted(0, 9) == []


def test_retention_takes_aborted_transactions_with_their_markers() -> None:
    disk = SimDisk()
    log = open_log(disk, SMALL)
    story(log)
    log.sync()
    log.advance_start(8)
    log.apply_retention(NOW)
    assert log.aborted(8, 11) == [(7, 7)]
    assert len(log.aborted_txns) == 2, "a reader may be at the dropped records"
    log.apply_retention(NOW + log.config.file_delete_delay_ms)
    assert len(log.aborted_txns) == 1
    assert [name[:20] for name in disk.list_dir(FOLDER) if name.endswith(".txnindex")] == [
        f"{log.segments[-1].base_offset:020d}"
    ]
    log.restart_at(50)
    assert (len(log.aborted_txns), log.first_unstable_offset(50)) == (0, None)
    assert not [name for name in disk.list_dir(FOLDER) if name.endswith(".txnindex")]


def test_a_follower_comes_to_the_state_of_its_leader() -> None:
    leader, follower = open_log(SimDisk()), open_log(SimDisk())
    story(leader)
    data = leader.read(0, 1 << 20, leader.end_offset, at_least_one=True).load()
    follower.append_as_follower(memoryview(data), NOW)
    assert follower.producers.encode() == leader.producers.encode()
    check_story(follower)
