"""Transactional ids take a bounded amount of memory: the ones that were not used for longest make room for new ones."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.coordinators.shard import Outcome
from headrace.coordinators.transactions.commands import AddPartitions, EndTransaction, InitProducer, ProducerReply
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.shard import ID_BYTES, PARTITION_BYTES, SAID_EVERY_MS, TransactionShard
from headrace.coordinators.transactions.transaction import State
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode

ROOM = 100  # ids with names of four characters
NOW = 1_700_000_000_000


class Shard:
    """A shard whose decisions take effect at once, as in the runtime, and what its journal holds."""

    def __init__(self) -> None:
        self.settings = TransactionSettings(max_state_bytes=ROOM * (ID_BYTES + 4))
        self.shard = TransactionShard(self.settings)
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.now_ms = NOW

    def decide(self, command: Any) -> Outcome:
        self.now_ms += 1
        outcome = self.shard.decide(command, self.now_ms)
        for key, value in outcome.records:
            self.shard.apply(key, value)
        self.journal += outcome.records
        return outcome

    def init(self, number: int) -> ErrorCode:
        reply = self.decide(InitProducer(f"{number:04}", 60_000, fresh_id=number)).reply
        assert isinstance(reply, ProducerReply)
        return reply.error

    def open(self, number: int, partitions: int = 1) -> ErrorCode:
        places = frozenset(TopicPartition("orders", index) for index in range(partitions))
        transaction = self.shard.transactions[f"{number:04}"]
        error: ErrorCode = self.decide(
            AddPartitions(f"{number:04}", transaction.producer_id, transaction.epoch, places)
        ).reply
        return error

    def names(self) -> set[int]:
        return {int(name) for name in self.shard.transactions}


def test_new_ids_take_the_place_of_those_that_were_not_used_for_longest() -> None:
    shard = Shard()
    for number in range(1_000):
        assert shard.init(number) is ErrorCode.none
        assert shard.init(7 if number >= 7 else number) is ErrorCode.none
        assert len(shard.names()) <= ROOM
    assert shard.names() == {7, *range(901, 1_000)}
    assert shard.shard.transactions["0007"].epoch > 900, "it is used all the time"
    assert shard.init(3) is ErrorCode.none, "one that was removed begins anew, as after its expiry"


def test_an_id_that_was_removed_cannot_go_on() -> None:
    shard = Shard()
    shard.init(0)
    before = shard.shard.transactions["0000"]
    for number in range(1, ROOM + 1):
        shard.init(number)
    places = frozenset([TopicPartition("orders", 0)])
    refused = shard.decide(AddPartitions("0000", before.producer_id, before.epoch, places)).reply
    assert refused is ErrorCode.invalid_producer_id_mapping


def test_open_transactions_are_kept_and_newcomers_are_told_to_try_again(caplog: pytest.LogCaptureFixture) -> None:
    shard = Shard()
    shard.settings = TransactionSettings(max_state_bytes=ROOM * (ID_BYTES + PARTITION_BYTES + 4))
    shard.shard = TransactionShard(shard.settings)
    for number in range(ROOM):
        assert shard.init(number) is ErrorCode.none
        assert shard.open(number) is ErrorCode.none
    for number in range(ROOM, ROOM + 50):
        assert shard.init(number) is ErrorCode.coordinator_not_available
    assert shard.names() == set(range(ROOM))
    assert len(caplog.messages) == 1, "said once a minute"
    assert "headrace.transaction.state.max.bytes" in caplog.text
    shard.now_ms += SAID_EVERY_MS
    assert shard.init(ROOM) is ErrorCode.coordinator_not_available
    assert len(caplog.messages) == 2
    ongoing = shard.shard.transactions["0005"]
    assert ongoing.state is State.ONGOING
    shard.decide(EndTransaction("0005", ongoing.producer_id, ongoing.epoch, commit=False))
    assert shard.init(ROOM) is ErrorCode.coordinator_not_available, "its markers are being written"


def test_partitions_count_too_and_a_transaction_does_not_remove_its_own_id() -> None:
    shard = Shard()
    for number in range(ROOM):
        shard.init(number)
    assert shard.open(0, 100) is ErrorCode.none
    assert 0 in shard.names()
    assert len(shard.names()) <= ROOM - 100 * PARTITION_BYTES // (ID_BYTES + 4)
    assert shard.open(0, 10_000) is ErrorCode.coordinator_not_available
    assert len(shard.shard.transactions["0000"].partitions) == 100


def test_the_journal_says_what_was_removed() -> None:
    shard = Shard()
    for number in range(3 * ROOM):
        shard.init(number)
    again = TransactionShard(shard.settings)
    for key, value in shard.journal:
        again.apply(key, value)
    assert list(again.transactions.items()) == list(shard.shard.transactions.items())
    assert again.state_bytes == shard.shard.state_bytes == ROOM * (ID_BYTES + 4)
