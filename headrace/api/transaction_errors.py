"""Maps the transaction coordinator's errors to codes that the client's version knows.

PRODUCER_FENCED (KIP-588) and TRANSACTION_ABORTABLE (KIP-890) are newer than the requests that return them. Older
versions get INVALID_PRODUCER_EPOCH for a fenced producer, and INVALID_TXN_STATE for a partition that is not in the
transaction. A producer whose transaction was aborted after its timeout is UNKNOWN_PRODUCER_ID to the coordinator: every
client knows that it may then abort, request a new epoch and continue (KIP-360). Newer clients get
TRANSACTION_ABORTABLE, which means the same.
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
