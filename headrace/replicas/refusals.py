"""Idempotent producers with a batch that was rejected for a temporary reason, and their batches behind it.

A producer has up to five batches in flight. If the first is rejected because the disk is full or too few replicas are
in sync, and the reason is gone when the second arrives, the second must be rejected as well: otherwise it would be
written before the first, or fail as out of order, upon which producers begin a new epoch and resend everything,
duplicates included. So every batch behind a rejected one gets the same error, until the rejected one has been sent
again.

Owned by replicas.leader_role, in memory, for one leader epoch: a new leader has rejected nobody, and batches that the
one before rejected may be written by now. A producer that gives up on a batch goes on with a higher epoch, or with the
same sequence for its next batch; one that does neither is forgotten after ten minutes.
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
        """Raises KafkaError for a batch behind a rejected one. `written` is the log's producer state: a batch that
        directly follows the last written one is behind nothing."""
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
        """This batch was rejected; of several batches of a producer the first counts."""
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

    def accepted(self, records: memoryview) -> None:
        """The rejected batch is written now, or never will be."""
        header = _first(records)
        if header is not None:
            known = self.by_producer.get(header.producer_id)
            if known is not None and (known.epoch, known.sequence) == (header.producer_epoch, header.base_sequence):
                del self.by_producer[header.producer_id]


def _first(records: memoryview) -> BatchHeader | None:
    """A producer sends one batch at a time. Of several the first decides: they are accepted or rejected together."""
    return read_header(records) if len(records) >= HEADER_BYTES else None
