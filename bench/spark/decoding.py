"""Decoding alone: record batches into Arrow-ready columns on one core, without a broker and without Spark."""

from __future__ import annotations

import time

from headrace.wire.columns import Column, read_columns, section_of
from headrace.wire.record import Record
from headrace.wire.records import encode_batch, open_batch

_BATCH_RECORDS = 4000
_PORTION = 10  # batches decoded together, as one fetch brings them
_EVERYTHING = Column.KEY | Column.VALUE | Column.OFFSET | Column.TIMESTAMP | Column.TIMESTAMP_TYPE
_ROUNDS = 5


def rates(records: int) -> dict[str, float]:
    """Records per second of CPU time, by the columns decoded: the best of a few rounds."""
    made = [Record(turn, 1_700_000_000_000 + turn, turn.to_bytes(8), b"x" * 100) for turn in range(_BATCH_RECORDS)]
    portion = [section_of(*open_batch(encode_batch(made)))] * _PORTION
    turns = max(1, records // (_BATCH_RECORDS * _PORTION))
    found: dict[str, float] = {}
    for what, wanted in (("values", Column.VALUE), ("all columns", _EVERYTHING)):
        for _ in range(_ROUNDS):
            began = time.thread_time()
            for _ in range(turns):
                read_columns(portion, wanted)
            rate = turns * _BATCH_RECORDS * _PORTION / (time.thread_time() - began)
            found[what] = max(rate, found.get(what, 0.0))
    return found
