"""A producer's transactions: begin, add offsets, commit, abort, and what each failure means.

Owned by Producer. librdkafka marks every failure of a transaction as retriable (call again: the outcome is not known
yet), abortable (abort, then the transaction may be retried) or fatal (this producer is unusable, most often because a
newer one with its transactional id has fenced it). Invariant: `commit` returns only when the broker has confirmed the
commit; in every other case it raises, and the caller aborts the open transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.sdk.errors import (
    Broken,
    Fenced,
    SdkError,
    TransactionAborted,
    Unreachable,
    WrongMoment,
    cause_of,
    explained,
    words_of,
)

CALL_TIMEOUT_S = 10.0
CALL_TURNS = 12  # a retriable call is retried for two minutes in all


class Transactions:
    def __init__(self, client: confluent_kafka.Producer, transactional_id: str) -> None:
        self._client = client
        self._id = transactional_id
        self._known = False  # the coordinator has given this producer an epoch, and fenced earlier ones
        self._open = False
        self._ended: SdkError | None = None  # why this producer is unusable; librdkafka reports it only once

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def is_over(self) -> bool:
        """Whether this producer is fenced, or unusable for another reason."""
        return self._ended is not None

    def start(self) -> None:
        """Initialize the transactional id: the broker fences earlier producers and aborts what they left open."""
        if not self._known:
            self._until_done("starting transactions", self._client.init_transactions)
            self._known = True

    def begin(self) -> None:
        if self._open:
            raise WrongMoment(f"a transaction of {self._id} is open already: commit or abort it before the next one")
        self.start()
        self._until_done("beginning a transaction", lambda _: self._client.begin_transaction())
        self._open = True

    def add_offsets(self, offsets: list[confluent_kafka.TopicPartition], group: Any) -> None:
        if offsets:
            self._until_done(
                "adding offsets to the transaction",
                lambda timeout_s: self._client.send_offsets_to_transaction(offsets, group, timeout_s),
            )

    def commit(self) -> None:
        self._until_done("committing the transaction", self._client.commit_transaction)
        self._open = False

    def abort_after(self, error: BaseException) -> None:
        """Abort the open transaction because of `error`, unless that has made the producer unusable."""
        if not self._open:
            return
        self._open = False
        if isinstance(error, Fenced | Broken):
            return  # the broker has aborted it, or will at its timeout
        self._until_done("aborting the transaction", self._client.abort_transaction)

    def _until_done(self, doing: str, call: Callable[[float], None]) -> None:
        if self._ended is not None:
            raise self._ended
        doing = f"{doing} of {self._id}"
        for _ in range(CALL_TURNS):
            try:
                call(CALL_TIMEOUT_S)
                return
            except KafkaException as error:
                cause = cause_of(error)
                if not cause.retriable():
                    judged = _judged(cause, doing)
                    if isinstance(judged, Fenced | Broken):
                        self._ended = judged
                    raise judged from error
        raise Unreachable(f"{doing}: no answer within {CALL_TURNS * CALL_TIMEOUT_S:g} s; the outcome is not known")


def _judged(error: KafkaError, doing: str) -> SdkError:
    meant = explained(error, doing)
    if error.fatal() and not isinstance(meant, Fenced):
        return Broken(f"{doing}: {words_of(error)}; this producer is unusable, open a new one", error.code())
    if error.txn_requires_abort():
        return TransactionAborted(f"{doing}: {words_of(error)}; it is aborted and may be retried", error.code())
    return meant
