"""The driver's side of exactly once: decides which transactions of a batch count, and commits them.

Called when Spark has all commit messages of a batch, in a process that may crash at any point. The order matters:

1. Take over the stream, which fences every other driver that might decide for it.
2. If its last decision is not finished, finish it: commit each of its transactions, then mark it as done.
3. If this run decided the batch already, before a crash, there is nothing to decide. If another run decided it
   meanwhile, this one fails: another driver is running the same query.
4. Check that every transaction of this run is still open. If one is not, fail without a decision.
5. Write the decision. From here on the batch is final, whatever happens.
6. Finish it as in 2; then abort open transactions of decided batches that are in no decision.

After a crash Spark runs the batch again with the same rows. Tasks check whether it is decided, and steps 2 and 3 apply.
Invariant: a transaction is committed only if a decision names it, and aborted only if no decision can.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from headrace.client.blocking import ConnectionLost
from headrace.model.failure import Failure
from headrace.spark.sink.decision_log import DecisionLog, StreamOwnership, Superseded
from headrace.spark.sink.decisions import Decision, Member, entries_of, forget
from headrace.spark.sink.names import Stream, TaskAttempt, parse_attempt
from headrace.spark.sink.transactions import COMMITTED_STATES, ProducerIdAndEpoch, Transactions
from headrace.wire.errors import ErrorCode, KafkaError

WRITE_SINK, WRITE_BATCH = "@write", 0  # a batch write is a stream of one batch, under a name that no sink can have


class Committer:
    def __init__(self, log: DecisionLog, transactions: Transactions, topic: str) -> None:
        self._log = log
        self._transactions = transactions
        self._topic = topic

    def commit(self, stream: Stream, batch: int, run: str, members: Sequence[Member], *, was_decided: bool) -> None:
        """Commit the batch, exactly once. `was_decided`: a task found it decided already, and wrote nothing."""
        if members or was_decided:
            self._commit(stream, batch, run, members, was_decided)

    def commit_write(self, stream: Stream, run: str, members: Sequence[Member]) -> None:
        """Commit a batch write, exactly once. Its decision is not needed afterwards, so it is deleted from the log."""
        if members:
            self._forget(self._commit(stream, WRITE_BATCH, run, members, False))

    def finish_writes(self) -> None:
        """Finish decisions of batch writes whose drivers crashed before all transactions were committed."""
        for decision in self._log.unfinished():
            if decision.stream.sink == WRITE_SINK:
                ownership = self._log.take_over(decision.stream)
                self._finish(ownership)
                self._forget(ownership)

    def _forget(self, ownership: StreamOwnership) -> None:
        if ownership.last.batch >= 0:
            with suppress(Superseded, ConnectionLost, KafkaError):  # the next write deletes it
                ownership.write(forget(ownership.last))

    def _commit(
        self, stream: Stream, batch: int, run: str, members: Sequence[Member], was_decided: bool
    ) -> StreamOwnership:
        ownership = self._log.take_over(stream)
        last = ownership.last
        if last.batch >= batch:
            self._refuse_another(last, batch, run, members)
            self._finish(ownership)
        else:
            if was_decided:
                raise Failure(
                    f"a task found batch {batch} of {stream} decided, but the decision log has none: was it deleted?"
                )
            self._finish(ownership)
            self._check_open(stream, batch, run, members)
            self._decide(ownership, Decision(stream, batch, run, self._topic, tuple(members), done=False))
            self._finish(ownership)
        self._sweep(ownership.last)
        return ownership

    def abort(self, stream: Stream, batch: int, run: str) -> None:
        """Abandon a run, unless it was decided: abort its transactions, also those of attempts that sent no message."""
        ownership = self._log.take_over(stream)
        last = ownership.last
        if last.batch >= batch:
            self._finish(ownership)
        else:
            # First the log records that this run must not be decided any more, not even by a process of it that hung.
            ownership.write(entries_of(replace(last, abandoned=run), last.parts))
        self._sweep(ownership.last, run)

    # --- the steps --------------------------------------------------------------------------------------------------

    def _refuse_another(self, last: Decision, batch: int, run: str, members: Sequence[Member]) -> None:
        if last.topic != self._topic:
            raise Failure(
                f"batch {batch} of {last.stream} was decided for topic {last.topic or '(of each row)'}, but this sink "
                f"writes to {self._topic or '(that of each row)'}: give each sink of a query its own name with option "
                "sinkName"
            )
        if members and (last.batch, last.run) != (batch, run):
            self._sweep(last)
            raise Failure(
                f"batch {batch} of {last.stream} was decided by another driver while this one ran it (the last "
                f"decision is on batch {last.batch}): the query runs twice, or two queries share a checkpoint; stop "
                "one of them"
            )

    def _check_open(self, stream: Stream, batch: int, run: str, members: Sequence[Member]) -> None:
        """Fail while the batch can still be run again, before a decision on a transaction that is no longer open."""
        attempts = [TaskAttempt(stream, batch, member.partition, run, member.attempt) for member in members]
        states = self._transactions.describe_all([attempt.transactional_id for attempt in attempts])
        for member, attempt in zip(members, attempts, strict=True):
            name = attempt.transactional_id
            found = states[name]
            if not found.is_open or found.producer != ProducerIdAndEpoch(member.producer_id, member.epoch):
                raise Failure(
                    f"the transaction {name} of task {member.partition} is {found.state or 'gone'} before it could be "
                    "committed: was it open longer than kafka.transaction.timeout.ms? "
                    f"Batch {batch} of {stream} was not written: run it again, with a longer timeout or smaller batches"
                )

    def _decide(self, ownership: StreamOwnership, intent: Decision) -> None:
        if ownership.last.abandoned == intent.run:
            raise Failure(f"batch {intent.batch} of {intent.stream} was abandoned by Spark, and is not written")
        intent = replace(intent, abandoned=ownership.last.abandoned)
        try:
            ownership.write(entries_of(intent, ownership.last.parts))
        except Superseded:
            raise
        except (ConnectionLost, KafkaError) as error:
            # The write may have succeeded or not: only the log can tell.
            again = self._log.take_over(intent.stream)
            if (again.last.batch, again.last.run) != (intent.batch, intent.run):
                raise Failure(
                    f"the decision on batch {intent.batch} of {intent.stream} could not be written ({error}): the "
                    "batch was not written, start the query again"
                ) from error
            ownership.adopt(again)

    def _finish(self, ownership: StreamOwnership) -> None:
        """Commit all transactions of the last decision, then mark it as done."""
        decision = ownership.last
        if decision.done:
            return
        for member in decision.members:
            self._commit_member(decision, member)
        try:
            ownership.write(entries_of(decision.finished(), decision.parts))
        except (Superseded, ConnectionLost, KafkaError):
            # All is committed. The driver that took over finds the decision and finishes it too, so this one need not
            # fail.
            ownership.adopt(self._log.take_over(decision.stream))
            if not ownership.last.done and ownership.last.batch == decision.batch:
                ownership.write(entries_of(decision.finished(), decision.parts))

    def _commit_member(self, decision: Decision, member: Member) -> None:
        attempt = decision.attempt_of(member)
        producer = ProducerIdAndEpoch(member.producer_id, member.epoch)
        code = self._transactions.end(attempt.transactional_id, producer, commit=True)
        if code is ErrorCode.none:
            return
        # Not conclusive: the error is the same for a transaction that was committed and for one that was aborted.
        found = self._transactions.describe(attempt.transactional_id)
        if found.state in COMMITTED_STATES and found.producer.id == producer.id:
            return
        raise Failure(
            f"batch {decision.batch} of {decision.stream} is decided, but the transaction of its task "
            f"{member.partition} ({attempt.transactional_id}) cannot be committed: the broker says {code.name}, its "
            f"state is {found.state or 'unknown'}. Its rows are lost if it was aborted because the driver was "
            "down for longer than kafka.transaction.timeout.ms; docs/spark-sink.md says how to recover"
        )

    def _sweep(self, decision: Decision, abandoned: str = "") -> None:
        """Abort orphans: open transactions of decided batches that no decision names, and all of an abandoned run. They
        would block read_committed consumers. One that cannot be aborted now is left to the next sweep, or to its
        timeout."""
        with suppress(ConnectionLost, KafkaError):
            for name in self._transactions.open_ids(decision.stream.prefix):
                attempt = parse_attempt(decision.stream, name)
                if attempt is None or decision.covers(attempt):
                    continue
                if attempt.batch <= decision.batch or attempt.run == abandoned:
                    self._transactions.fence(name)
