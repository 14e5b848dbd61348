"""Idempotent producers that were refused for a reason that passes, and what is behind the refused batch.

A producer has up to five batches on their way. If the first is refused because the disk is full or too few replicas are
in sync, and the reason is gone when the second arrives, then the second must not be taken: it would be written before
the first, or be refused as out of order, at which producers begin a new epoch and send everything again, doubles
included. So whoever is behind a refused batch shares its refusal, until that batch has come again.

Owned by replicas.partition, in memory, for as long as it leads in one epoch. A producer that gives up on the batch goes
on with a higher epoch, or with the same sequence for its next batch; one that does neither is let go after a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.log.producer_state import Producer
from headrace.wire.batches import HEADER_BYTES, BatchHeader, read_header
from headrace.wire.errors import ErrorCode, KafkaError

_PASSING = {
    ErrorCode.kafka_storage_error,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_leader_or_follower,
}
_KEPT_MS = 600_000
_KEPT = 10_000  # producers
_SEQUENCES = 1 << 31


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    at_ms: int


class Refusals:
    def __init__(self) -> None:
        self.by_producer: dict[int, _Refused] = {}

    def check(self, records: memoryview, written: Mapping[int, Producer], now_ms: int) -> None:
        """Raises KafkaError for what is behind a refused batch. `written` is what the log knows of producers: what
        follows directly on what is written is behind nothing."""
        header = _first(records)
        refused = None if header is None else self.by_producer.get(header.producer_id)
        if header is None or refused is None:
            return
        known = written.get(header.producer_id)
        is_next = known is not None and 0 <= known.next_sequence == header.base_sequence
        if header.producer_epoch != refused.epoch or now_ms - refused.at_ms > _KEPT_MS or is_next:
            del self.by_producer[header.producer_id]
        elif 0 < (header.base_sequence - refused.sequence) % _SEQUENCES < _SEQUENCES // 2:
            raise KafkaError(
                refused.code,
                f"producer {header.producer_id} sent sequence {header.base_sequence}; {refused.sequence}, which was "
                "refused for a reason that passes, comes before",
            )

    def refused(self, records: memoryview, error: KafkaError, now_ms: int) -> None:
        """This batch was refused; the first that was counts."""
        header = _first(records)
        if header is None or header.producer_id < 0 or header.base_sequence < 0:
            return
        known = self.by_producer.get(header.producer_id)
        if error.code not in _PASSING:
            self.accepted(records)
        elif known is None or known.epoch != header.producer_epoch:
            if len(self.by_producer) >= _KEPT:
                del self.by_producer[next(iter(self.by_producer))]
            refused = _Refused(header.producer_epoch, header.base_sequence, error.code, now_ms)
            self.by_producer[header.producer_id] = refused

    def forget(self) -> None:
        """A new leader has refused nobody: what came to the one before may be written by now."""
        self.by_producer.clear()

    def accepted(self, records: memoryview) -> None:
        """What was refused is written now, or never will be."""
        header = _first(records)
        if header is not None:
            known = self.by_producer.get(header.producer_id)
            if known is not None and (known.epoch, known.sequence) == (header.producer_epoch, header.base_sequence):
                del self.by_producer[header.producer_id]


def _first(records: memoryview) -> BatchHeader | None:
    """A producer sends one batch at a time; of several the first decides, for they stand or fall together."""
    return read_header(records) if len(records) >= HEADER_BYTES else None
