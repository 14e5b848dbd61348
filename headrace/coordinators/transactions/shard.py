"""The transactions shard: all transactional ids whose names hash to one partition of `__transaction_state`.

It decides which producer may use a transactional id, which partitions are in its transaction, and how the transaction
ends. Run by the coordinator runtime. Invariants:

- A decision to commit or abort is written before any marker, and never changes after that.
- There is one producer per id. A producer that initializes an id gets a higher epoch than all before, and those are
  rejected from then on.
- All ids of a shard together take a bounded amount of memory (a setting). When there is no room for a new one, those
  that were used least recently and have no transaction are removed, as if they had expired; if there are none, the
  request gets COORDINATOR_NOT_AVAILABLE and may be retried. So nobody can fill the memory, or keep others out for long:
  open transactions end with their timeouts.
- A transaction is not open for longer than its producer's timeout. If it is aborted by the timeout, it gets the next
  epoch. Its producer gets UNKNOWN_PRODUCER_ID and may then ask for that epoch and continue (KIP-588), unless another
  producer has initialized the id in the meantime.

Except for timers, all state is derived from the records, so there is no live state that a crash could lose.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Any

from headrace.coordinators.shard import Outcome
from headrace.coordinators.transactions.commands import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    ExpireIds,
    FreshIdNeeded,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    ProducerReply,
    TimeUp,
    VerifyPartitions,
)
from headrace.coordinators.transactions.ending import end
from headrace.coordinators.transactions.markers import Decision
from headrace.coordinators.transactions.records import read_key, read_transaction, tombstone, transaction_record
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, State, Transaction
from headrace.wire.errors import ErrorCode, Malformed

logger = logging.getLogger(__name__)

MAX_RECORDS = 1_000  # in one write of a clean-up, so that it fits into a batch
MAX_NAME_BYTES = 0x7FFF  # what the record format has room for
ID_BYTES = 500  # of one id in memory, without its name
PARTITION_BYTES = 200  # of one partition in a transaction
SAID_EVERY_MS = 60_000
_LOOKED_AT = 1_000  # ids at most, to find some that may be removed


class TransactionShard:
    def __init__(self, settings: TransactionSettings) -> None:
        self.transactions: dict[str, Transaction] = {}  # the one that was used least recently comes first
        self.state_bytes = 0
        """What all of them take in memory, nearly."""
        self._said_full_ms = -SAID_EVERY_MS
        self._settings = settings
        self._rules: dict[type, Callable[[Any, Outcome, int], None]] = {
            InitProducer: self._init,
            AddPartitions: self._add,
            VerifyPartitions: self._verify,
            EndTransaction: self._end,
            MarkersWritten: self._markers_written,
            DescribeTransaction: self._describe,
            ListTransactions: self._list,
            TimeUp: self._time_up,
            ExpireIds: self._expire_ids,
        }

    # --- the shard contract -----------------------------------------------------------------------------------------

    def decide(self, command: Any, now_ms: int) -> Outcome:
        outcome = Outcome()
        self._rules[type(command)](command, outcome, now_ms)
        return outcome

    def apply(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        try:
            transactional_id = read_key(key)
            after = None if value is None else read_transaction(value)
        except Malformed as error:
            # An unreadable record, written by a newer version, must not make all the others unavailable.
            logger.warning("skipped: %s", error)
            return
        before = self.transactions.pop(transactional_id, None)
        if before is not None:
            self.state_bytes -= _cost_bytes(transactional_id, before)
        if after is not None:
            self.transactions[transactional_id] = after
            self.state_bytes += _cost_bytes(transactional_id, after)

    def apply_end(self, producer_id: int, commit: bool) -> None:
        """Records of this journal are never part of a transaction."""

    def loaded(self, now_ms: int) -> Outcome:
        """Decisions that may not have reached every partition are executed again; open transactions keep their
        timeouts.
        """
        outcome = Outcome()
        for transactional_id, transaction in self.transactions.items():
            if transaction.state.ending:
                outcome.follow_ups.append(_decision(transactional_id, transaction))
            elif transaction.state is State.ONGOING:
                self._set_timeout(transactional_id, transaction, outcome, now_ms)
        outcome.set_timer("expiry", self._settings.expiry_check_interval_ms, ExpireIds())
        return outcome

    def _write(self, transactional_id: str, transaction: Transaction, outcome: Outcome) -> None:
        outcome.write(transaction_record(transactional_id, transaction))
        if transaction.state.ending:
            outcome.follow_ups.append(_decision(transactional_id, transaction))

    # --- producers --------------------------------------------------------------------------------------------------

    def _init(self, command: InitProducer, outcome: Outcome, now_ms: int) -> None:
        outcome.reply = self._unfit(command) or self._initialized(command, outcome, now_ms)

    def _unfit(self, command: InitProducer) -> ProducerReply | None:
        name = command.transactional_id
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            return ProducerReply(ErrorCode.invalid_request)
        if not 0 < command.timeout_ms <= self._settings.max_timeout_ms:
            return ProducerReply(ErrorCode.invalid_transaction_timeout)
        return None

    def _initialized(self, command: InitProducer, outcome: Outcome, now_ms: int) -> ProducerReply | FreshIdNeeded:
        name, expected = command.transactional_id, command.expected
        before = self.transactions.get(name)
        if before is None:
            if not self._make_room(ID_BYTES + len(name), name, outcome, now_ms):
                return ProducerReply(ErrorCode.coordinator_not_available)
            if command.fresh_id is None:
                return FreshIdNeeded()
            before = Transaction(command.fresh_id)
        asks_again = expected is not None and expected == _last(before)
        if before.epoch != NO_EPOCH and expected not in (None, _current(before)) and not asks_again:
            return ProducerReply(ErrorCode.producer_fenced)
        if before.state.ending:
            return ProducerReply(ErrorCode.concurrent_transactions)
        if before.state is State.ONGOING:
            after = before.fenced(now_ms) if expected is None else before.recalled(now_ms, timed_out=False)
            self._write(name, after, outcome)
            return ProducerReply(ErrorCode.concurrent_transactions)
        last_epoch = NO_EPOCH if expected is None else expected[1]
        if before.exhausted:
            if command.fresh_id is None:
                return FreshIdNeeded()
            after = before.rotated(command.fresh_id, command.timeout_ms, last_epoch, now_ms)
        elif asks_again:
            after = before.kept(command.timeout_ms, now_ms)
        else:
            after = before.bumped(command.timeout_ms, last_epoch if before.epoch != NO_EPOCH else NO_EPOCH, now_ms)
        self._write(name, after, outcome)
        return ProducerReply(ErrorCode.none, after.producer_id, after.epoch)

    # --- partitions -------------------------------------------------------------------------------------------------

    def _add(self, command: AddPartitions, outcome: Outcome, now_ms: int) -> None:
        before = self.transactions.get(command.transactional_id)
        problem = _may_not_write(before, command)
        if before is None or problem is not None:
            outcome.reply = problem
            return
        outcome.reply = ErrorCode.none
        if before.state is State.ONGOING and command.partitions <= before.partitions:
            return
        added = len(command.partitions - before.partitions)
        if not self._make_room(PARTITION_BYTES * added, command.transactional_id, outcome, now_ms):
            outcome.reply = ErrorCode.coordinator_not_available
            return
        after = before.with_partitions(command.partitions, command.version, now_ms)
        self._write(command.transactional_id, after, outcome)
        if before.state is not State.ONGOING:
            self._set_timeout(command.transactional_id, after, outcome, now_ms)

    def _verify(self, command: VerifyPartitions, outcome: Outcome, now_ms: int) -> None:
        transaction = self.transactions.get(command.transactional_id)
        problem = _may_not_write(transaction, command)
        if transaction is None or problem is not None:
            outcome.reply = [problem] * len(command.partitions)
            return
        outcome.reply = [
            ErrorCode.none if place in transaction.partitions else ErrorCode.transaction_abortable
            for place in command.partitions
        ]

    # --- the end ----------------------------------------------------------------------------------------------------

    def _end(self, command: EndTransaction, outcome: Outcome, now_ms: int) -> None:
        before = self.transactions.get(command.transactional_id)
        if not command.transactional_id or before is None:
            known = ErrorCode.invalid_producer_id_mapping if command.transactional_id else ErrorCode.invalid_request
            outcome.reply = ProducerReply(known)
            return
        after = end(before, command, now_ms)
        if isinstance(after, Transaction):
            self._write(command.transactional_id, after, outcome)
            outcome.reply = ProducerReply(ErrorCode.none, *after.told())
        else:
            outcome.reply = after

    def _markers_written(self, command: MarkersWritten, outcome: Outcome, now_ms: int) -> None:
        before = self.transactions.get(command.transactional_id)
        if before is not None and before.state.ending and _current(before) == (command.producer_id, command.epoch):
            self._write(command.transactional_id, before.completed(now_ms), outcome)

    # --- with time --------------------------------------------------------------------------------------------------

    def _set_timeout(self, transactional_id: str, opened: Transaction, outcome: Outcome, now_ms: int) -> None:
        # The wall clock may have jumped, so the remaining time is capped at the full timeout.
        left_ms = min(max(0, opened.start_ms + opened.timeout_ms - now_ms), opened.timeout_ms)
        command = TimeUp(transactional_id, opened.producer_id, opened.epoch, opened.start_ms)
        outcome.set_timer(("timeout", transactional_id), left_ms, command)

    def _time_up(self, command: TimeUp, outcome: Outcome, now_ms: int) -> None:
        before = self.transactions.get(command.transactional_id)
        if before is None or before.state is not State.ONGOING:
            return
        if (*_current(before), before.start_ms) == (command.producer_id, command.epoch, command.start_ms):
            logger.info("transaction of %s was open for %d ms; aborted", command.transactional_id, before.timeout_ms)
            self._write(command.transactional_id, before.recalled(now_ms, timed_out=True), outcome)

    def _expire_ids(self, command: ExpireIds, outcome: Outcome, now_ms: int) -> None:
        delay_ms = self._settings.expiry_check_interval_ms
        for transactional_id, transaction in self.transactions.items():
            if _at_rest(transaction) and now_ms - transaction.updated_ms >= self._settings.id_expiration_ms:
                self._remove(transactional_id, outcome)
            if len(outcome.records) >= MAX_RECORDS:
                delay_ms = 0
                break
        outcome.set_timer("expiry", delay_ms, command)

    # --- room -------------------------------------------------------------------------------------------------------

    def _make_room(self, needed_bytes: int, wanted: str, outcome: Outcome, now_ms: int) -> bool:
        """Removes ids that were not used for longest until there is room, or says that there is none; not `wanted`."""
        surplus = self.state_bytes + needed_bytes - self._settings.max_state_bytes
        if surplus <= 0:
            return True
        removed = list[str]()
        for name, transaction in islice(self.transactions.items(), _LOOKED_AT):
            if surplus <= 0:
                break
            if _at_rest(transaction) and name != wanted:
                surplus -= _cost_bytes(name, transaction)
                removed.append(name)
        if surplus > 0:
            self._say_full(now_ms)
            return False
        for name in removed:
            self._remove(name, outcome)
        return True

    def _say_full(self, now_ms: int) -> None:
        if abs(now_ms - self._said_full_ms) >= SAID_EVERY_MS:
            self._said_full_ms = now_ms
            logger.warning(
                "a transactional id was refused: %d ids with open transactions take the %d bytes that "
                "headrace.transaction.state.max.bytes allows; wait until they end, or allow more",
                len(self.transactions),
                self._settings.max_state_bytes,
            )

    def _remove(self, transactional_id: str, outcome: Outcome) -> None:
        outcome.write(tombstone(transactional_id))
        outcome.cancel_timer(("timeout", transactional_id))

    # --- from outside -----------------------------------------------------------------------------------------------

    def _describe(self, command: DescribeTransaction, outcome: Outcome, now_ms: int) -> None:
        outcome.reply = self.transactions.get(command.transactional_id)

    def _list(self, command: ListTransactions, outcome: Outcome, now_ms: int) -> None:
        outcome.reply = list(self.transactions.items())


def _at_rest(transaction: Transaction) -> bool:
    return not transaction.state.ending and transaction.state is not State.ONGOING


def _cost_bytes(transactional_id: str, transaction: Transaction) -> int:
    return ID_BYTES + len(transactional_id) + PARTITION_BYTES * len(transaction.partitions)


def _current(transaction: Transaction) -> tuple[int, int]:
    return transaction.producer_id, transaction.epoch


def _last(transaction: Transaction) -> tuple[int, int] | None:
    """The producer id and epoch of a producer that has not received its new ones."""
    if transaction.last_epoch == NO_EPOCH:
        return None
    rotated = transaction.epoch == 0
    return (transaction.previous_producer_id if rotated else transaction.producer_id), transaction.last_epoch


def _may_not_write(transaction: Transaction | None, asked: AddPartitions | VerifyPartitions) -> ErrorCode | None:
    if not asked.transactional_id:
        return ErrorCode.invalid_request
    if transaction is None:
        return ErrorCode.invalid_producer_id_mapping
    if transaction.state.ending and (asked.producer_id, asked.epoch) == transaction.told():
        return ErrorCode.concurrent_transactions
    if asked.producer_id != transaction.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if asked.epoch == transaction.last_epoch and transaction.timed_out:
        return ErrorCode.unknown_producer_id
    return ErrorCode.producer_fenced if asked.epoch != transaction.epoch else None


def _decision(transactional_id: str, transaction: Transaction) -> Decision:
    return Decision(
        transactional_id,
        transaction.producer_id,
        transaction.epoch,
        transaction.state is State.PREPARE_COMMIT,
        transaction.version,
        tuple(sorted(transaction.partitions)),
    )
