"""How a producer may end its transaction: the rules of EndTxn, for all versions of transactions.

Clients of transaction.version 0 and 1 keep their epoch: a retried EndTxn carries the same epoch and is recognized by
the state. Clients of version 2 get a new epoch with every end (KIP-890): a retried EndTxn carries the previous epoch,
and one with the current epoch belongs to the next transaction.

A producer whose transaction timed out does not know it. Its abort is answered with success, and its commit with an
error after which it may abort and continue (KIP-588). Pure; called by the transactions shard.
"""

from __future__ import annotations

from headrace.coordinators.transactions.commands import EndTransaction, FreshIdNeeded, ProducerReply
from headrace.coordinators.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    State,
    Transaction,
)
from headrace.model.transaction_end import BUMPING_VERSION
from headrace.wire.errors import ErrorCode

_Refused = ProducerReply


def end(before: Transaction, command: EndTransaction, now_ms: int) -> Transaction | ProducerReply | FreshIdNeeded:
    """The next state of the transaction, or the reply to a request that changes nothing."""
    again = _comes_again(before, command)
    bumping = command.version >= BUMPING_VERSION
    if bumping and before.state.ending and (command.producer_id, command.epoch) == before.told():
        return _Refused(ErrorCode.concurrent_transactions)  # the next EndTxn while this one is in progress
    if command.producer_id != before.producer_id and not again:
        return _Refused(ErrorCode.invalid_producer_id_mapping)
    if before.state.ending:
        return _while_ending(before, command, again)
    if again and before.state is not State.EMPTY and before.state is not State.ONGOING:
        return _again(before, command)
    if command.epoch != before.epoch:
        return _Refused(ErrorCode.producer_fenced)
    if before.state is State.ONGOING:
        return _decided(before, command, now_ms)
    if not bumping:
        return _second_end(before, command)
    if command.commit:
        return _Refused(ErrorCode.invalid_txn_state)
    return _decided(before, command, now_ms)  # an abort without a transaction also raises the epoch


def _comes_again(before: Transaction, command: EndTransaction) -> bool:
    """Whether it carries the previous epoch, replaced by its own EndTxn or by a timeout."""
    if before.last_epoch == NO_EPOCH or command.epoch != before.last_epoch:
        return False
    if command.version < BUMPING_VERSION and not before.timed_out:
        return False
    if before.epoch == 0:
        return command.producer_id == before.previous_producer_id
    return command.producer_id == before.producer_id


def _decided(before: Transaction, command: EndTransaction, now_ms: int) -> Transaction | FreshIdNeeded:
    fresh_id = NO_PRODUCER_ID
    if command.version >= BUMPING_VERSION and before.exhausted:
        if command.fresh_id is None:
            return FreshIdNeeded()
        fresh_id = command.fresh_id
    return before.ended(command.commit, command.version, fresh_id, now_ms)


def _while_ending(before: Transaction, command: EndTransaction, again: bool) -> ProducerReply:
    if not again and command.epoch != before.epoch:
        return _Refused(ErrorCode.producer_fenced)
    if command.commit == (before.state is State.PREPARE_COMMIT):
        return _Refused(ErrorCode.concurrent_transactions)
    return _Refused(_late_commit(before))


def _again(before: Transaction, command: EndTransaction) -> ProducerReply:
    if command.commit != (before.state is State.COMPLETE_COMMIT):
        return _Refused(_late_commit(before))
    if before.epoch == MAX_EPOCH:
        return _Refused(ErrorCode.producer_fenced)  # the timeout used up the last epoch of this producer id
    return ProducerReply(ErrorCode.none, before.producer_id, before.epoch)


def _second_end(before: Transaction, command: EndTransaction) -> ProducerReply:
    done = State.COMPLETE_COMMIT if command.commit else State.COMPLETE_ABORT
    if before.state is done:
        return ProducerReply(ErrorCode.none, before.producer_id, before.epoch)
    return _Refused(ErrorCode.invalid_txn_state)


def _late_commit(before: Transaction) -> ErrorCode:
    return ErrorCode.unknown_producer_id if before.timed_out else ErrorCode.invalid_txn_state
