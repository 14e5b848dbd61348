"""Batches and logs for the tests of this room."""

from __future__ import annotations

import uuid
from pathlib import Path

from headrace.log import identity, recovery
from headrace.log.appended import Appended
from headrace.log.files import FilePool
from headrace.log.indexes import IndexShelf
from headrace.log.opening import Unprepared
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Shelf
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import walk
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from headrace.world.disk import Disk

FOLDER = Path("/data/orders-0")
NOW = 1_700_000_000_000


def batch(
    count: int = 1, *, at: int = NOW, value: bytes = b"value", key: bytes | None = b"k", attributes: int = 0
) -> memoryview:
    """`count` records whose times rise by one from `at`."""
    records = [Record(i, at + i, key, value) for i in range(count)]
    return memoryview(encode_batch(records, attributes=attributes))


def from_producer(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> memoryview:
    records = [Record(i, NOW, b"k", b"v") for i in range(count)]
    return memoryview(encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))


def new_shelf(disk: Disk) -> Shelf:
    return Shelf(disk, FilePool(disk), IndexShelf())


def open_log(disk: Disk, config: TopicConfig = TopicConfig(), folder: Path = FOLDER, now_ms: int = NOW) -> PartitionLog:
    """The log in this folder, which is made if it is not there."""
    if not disk.exists(folder):
        disk.make_dirs(folder)
        identity.save(disk, folder, uuid.UUID(int=1))
    shelf = new_shelf(disk)
    loaded = recovery.load(shelf, folder, config, now_ms)
    log = PartitionLog(shelf, loaded, config, set(), now_ms)
    log.finish_truncation()
    return log


def append(log: PartitionLog, records: memoryview, *, now_ms: int = NOW, transactional: bool = False) -> Appended:
    """As PartitionLog.append, with what takes long done here."""
    prepared = None
    for _ in range(10):
        try:
            return log.append(records, 0, now_ms=now_ms, transactional=transactional, prepared=prepared)
        except Unprepared as unprepared:
            prepared = unprepared.step(records)
    raise AssertionError("an append is never prepared")


def read_all(log: PartitionLog, max_bytes: int = 1000) -> list[Record]:
    """Every record from the start of the log on, in many small reads."""
    found: list[Record] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, max_bytes, log.end_offset, at_least_one=True).load()
        if not data:
            break
        for at, header in walk(data):
            found.extend(record for record in decode(data, at) if record.offset >= log.start_offset)
            offset = header.next_offset
    return found


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_all(log)]
