"""Whatever happens to a transactional id: the journal read back is the same state, a decision stands, epochs fence.

A machine plays clients of both ways of transactions, some of them late, against one shard. Markers are delivered when
the machine feels like it, also twice.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from msgspec.structs import replace

from headrace.coordinators.shard import Outcome, Record
from headrace.coordinators.transactions.commands import (
    AddPartitions,
    EndTransaction,
    FreshIdNeeded,
    InitProducer,
    MarkersWritten,
    ProducerReply,
    TimeUp,
    VerifyPartitions,
)
from headrace.coordinators.transactions.markers import Decision
from headrace.coordinators.transactions.records import transaction_record
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.shard import TransactionShard
from headrace.coordinators.transactions.transaction import MAX_EPOCH, State
from headrace.wire.errors import ErrorCode

ID = "x"
places = st.frozensets(st.tuples(st.just("t"), st.integers(0, 2)), min_size=1)
versions = st.sampled_from([0, 2])


class TransactionMachine(RuleBasedStateMachine):
    producers = Bundle("producers")

    def __init__(self) -> None:
        super().__init__()
        self.shard = TransactionShard(TransactionSettings())
        self.journal: list[Record] = []
        self.decisions: dict[tuple[int, int], list[Decision]] = {}
        self.undelivered: list[Decision] = []
        self.fenced_before = (-1, -1)  # nobody below this, in the order in which ids were given, may do anything
        self.next_id = 1000
        self.now_ms = 0

    def decide(self, command: Any) -> Any:
        outcome = self.shard.decide(command, self.now_ms)
        if isinstance(outcome.reply, FreshIdNeeded):
            assert not outcome.records
            self.next_id += 1
            command = type(command)(
                **{name: getattr(command, name) for name in command.__slots__} | {"fresh_id": self.next_id - 1}
            )
            outcome = self.shard.decide(command, self.now_ms)
        self.carry_out(outcome)
        return outcome.reply

    def carry_out(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.journal.append(record)
            self.shard.apply(*record)
        for decision in outcome.follow_ups:
            known = self.decisions.setdefault((decision.producer_id, decision.producer_epoch), [])
            if known and decision.version >= 2:
                assert known[-1] == decision, "two decisions under one epoch"
            known.append(decision)
            self.undelivered.append(decision)

    # --- producers --------------------------------------------------------------------------------------------------

    @rule(target=producers)
    def a_process_begins(self) -> Any:
        reply = self.decide(InitProducer(ID, 60_000))
        if reply.error is not ErrorCode.none:
            assert reply.error is ErrorCode.concurrent_transactions
            return multiple()
        holder = (reply.producer_id, reply.epoch)
        assert holder > self.fenced_before
        self.fenced_before = holder
        return holder

    @rule(target=producers, producer=producers)
    def it_goes_on_after_an_error(self, producer: tuple[int, int]) -> Any:
        reply = self.decide(InitProducer(ID, 60_000, expected=producer))
        return self.judged(producer, reply)

    @rule(producer=producers, partitions=places, version=versions)
    def it_adds_partitions(
        self, producer: tuple[int, int], partitions: frozenset[tuple[str, int]], version: int
    ) -> None:
        code = self.decide(AddPartitions(ID, *producer, partitions, version))
        if producer < self.fenced_before:
            assert code is not ErrorCode.none
        if code is ErrorCode.none:
            verified = self.decide(VerifyPartitions(ID, *producer, tuple(partitions)))
            assert set(verified) == {ErrorCode.none}

    @rule(target=producers, producer=producers, commit=st.booleans(), version=versions)
    def it_ends_its_transaction(self, producer: tuple[int, int], commit: bool, version: int) -> Any:
        reply = self.decide(EndTransaction(ID, *producer, commit, version))
        return self.judged(producer, reply)

    def judged(self, producer: tuple[int, int], reply: ProducerReply) -> Any:
        if reply.error is not ErrorCode.none:
            return multiple()
        assert producer >= self.fenced_before, "somebody who was fenced got through"
        told = (reply.producer_id, reply.epoch)
        assert told >= producer
        assert reply.epoch < MAX_EPOCH
        return told

    # --- the world --------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def markers_arrive(self, data: st.DataObject) -> None:
        if self.undelivered:
            decision = data.draw(st.sampled_from(self.undelivered))
            if data.draw(st.booleans()):
                self.undelivered.remove(decision)
            self.decide(MarkersWritten(ID, decision.producer_id, decision.producer_epoch))

    @rule()
    def time_is_up(self) -> None:
        found = self.shard.transactions.get(ID)
        if found is not None:
            self.decide(TimeUp(ID, found.producer_id, found.epoch, found.start_ms))

    @rule(seconds=st.integers(0, 100))
    def time_passes(self, seconds: int) -> None:
        self.now_ms += seconds * 1000

    @rule()
    def another_broker_takes_over(self) -> None:
        self.shard = self.read_back()
        self.carry_out(self.shard.loaded(self.now_ms))

    @rule(target=producers, left=st.integers(1, 3))
    def the_id_was_used_many_times(self, left: int) -> Any:
        """All epochs but the last ones are gone, and nothing is open."""
        found = self.shard.transactions.get(ID)
        if found is None or found.state is not State.EMPTY or found.epoch > MAX_EPOCH - 10:
            return multiple()
        worn = replace(found, epoch=MAX_EPOCH - left, last_epoch=-1)
        self.carry_out(Outcome(records=[transaction_record(ID, worn)]))
        self.fenced_before = (worn.producer_id, worn.epoch)
        return self.fenced_before if left > 1 else multiple()

    def read_back(self) -> TransactionShard:
        fresh = TransactionShard(TransactionSettings())
        for record in self.journal:
            fresh.apply(*record)
        return fresh

    @invariant()
    def reading_the_journal_back_gives_the_same(self) -> None:
        assert self.read_back().transactions == self.shard.transactions


TransactionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTransactions = TransactionMachine.TestCase
