"""The coordinator's refusals in the words that a client's version knows.

PRODUCER_FENCED (KIP-588) and TRANSACTION_ABORTABLE (KIP-890) came later than the requests that they answer. Before them
a fenced producer was told INVALID_PRODUCER_EPOCH, and a partition that is not in the transaction INVALID_TXN_STATE. A
producer whose transaction was aborted for its time is UNKNOWN_PRODUCER_ID to the coordinator: every client knows that
it may abort then, ask for a new epoch and go on (KIP-360), and newer ones hear TRANSACTION_ABORTABLE, which means the
same.
"""

from __future__ import annotations

from headrace.wire.errors import ErrorCode


def told(code: ErrorCode, *, knows_fenced: bool, knows_abortable: bool) -> ErrorCode:
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.unknown_producer_id and knows_abortable:
        return ErrorCode.transaction_abortable
    if code is ErrorCode.transaction_abortable and not knows_abortable:
        return ErrorCode.invalid_txn_state
    return code
