"""One attempt of one task of the sink: writes Arrow batches as records that the driver commits or aborts.

Runs on executors. Exactly once: the attempt reads the last decision first, and if its batch is decided it writes
nothing; else it opens a transaction of its own with its first row, writes into it, and leaves it open. The commit
message identifies the transaction. An attempt without rows opens none. One that fails aborts its transaction if it
still can; else the driver does, or its timeout.

At least once: the same without a transaction; stored records are final.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from headrace.client.blocking import ConnectionLost, Dial
from headrace.client.metadata import Cluster
from headrace.spark.sink.buffers import Buffers
from headrace.spark.sink.decision_log import DecisionLog
from headrace.spark.sink.decisions import Member
from headrace.spark.sink.names import TaskAttempt
from headrace.spark.sink.options import SinkOptions
from headrace.spark.sink.rows import columns_of
from headrace.spark.sink.sender import Sender
from headrace.spark.sink.transactions import ProducerIdAndEpoch, Transactions
from headrace.spark.worker_process import freeze_loaded_modules
from headrace.wire.errors import KafkaError
from headrace.world.clock import SystemClock
from headrace.world.net import dial


class Written(NamedTuple):
    """What an attempt did."""

    attempt: TaskAttempt
    rows: int = 0
    member: Member | None = None  # its open transaction
    was_decided: bool = False  # it found the batch decided, and wrote nothing


def open_cluster(options: SinkOptions, dial: Dial = dial) -> Cluster:
    timeout_s = options.request_timeout_ms / 1000
    return Cluster(options.bootstrap, options.client_id, patience_s=timeout_s, timeout_s=timeout_s, dial=dial)


class TaskWriter:
    def __init__(self, options: SinkOptions, attempt: TaskAttempt, clock: SystemClock, dial: Dial = dial) -> None:
        self._options = options
        self._attempt = attempt
        self._clock = clock
        self._dial = dial

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        freeze_loaded_modules()
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return Written(self._attempt)
        with open_cluster(self._options, self._dial) as cluster, open_cluster(self._options, self._dial) as lane:
            transactions = Transactions(cluster, self._clock, self._options.request_timeout_ms / 1000)
            if not self._options.exactly_once:
                return self._write_rows(cluster, lane, transactions, first, filled, transactions.begin_without(), None)
            last = DecisionLog(cluster, transactions, self._clock).last(self._attempt.stream)
            if last.batch >= self._attempt.batch:
                for _ in filled:  # Spark expects the iterator to be consumed
                    pass
                return Written(self._attempt, was_decided=True)
            name = self._attempt.transactional_id
            producer = transactions.begin(name, self._options.transaction_timeout_ms)
            try:
                return self._write_rows(cluster, lane, transactions, first, filled, producer, name)
            except BaseException:
                with suppress(ConnectionLost, KafkaError):
                    transactions.end(name, producer, commit=False)
                raise

    def _write_rows(
        self,
        cluster: Cluster,
        lane: Cluster,
        transactions: Transactions,
        first: pa.RecordBatch,
        rest: Iterator[pa.RecordBatch],
        producer: ProducerIdAndEpoch,
        name: str | None,
    ) -> Written:
        options, attempt = self._options, self._attempt
        sender = Sender(cluster, lane, transactions, options, producer, name, self._clock)
        buffers = Buffers(
            cluster, sender, options, producer, attempt.partition, self._clock, transactional=name is not None
        )
        buffers.add(columns_of(first, options.topic, self._clock.now_ms()))
        for batch in rest:
            buffers.add(columns_of(batch, options.topic, self._clock.now_ms()))
        buffers.flush()
        member = Member(attempt.partition, attempt.attempt, *producer) if name is not None else None
        return Written(attempt, buffers.rows, member)
