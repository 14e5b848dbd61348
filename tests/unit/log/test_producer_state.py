"""Producer state: sequences in order, the last five batches known, wrap-around, and snapshots."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.producer_state import ProducerStates, Written, decode, follows
from headrace.wire.batches import TRANSACTIONAL, BatchHeader
from headrace.wire.errors import ErrorCode, KafkaError

LAST = 0x7FFFFFFF


def header(
    sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    attributes = TRANSACTIONAL if transactional else 0
    return BatchHeader(0, 49, 0, 2, 0, attributes, count - 1, 0, 0, producer, epoch, sequence, count)


def refused(states: ProducerStates, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        states.check(batch)
    return error.value.code


def test_five_batches_are_known_and_the_sixth_is_not() -> None:
    states = ProducerStates()
    for sequence in range(6):
        assert states.check(header(sequence)) is None
        states.remember(header(sequence), 100 + sequence, -1, 0)
    for sequence in range(1, 6):
        assert states.check(header(sequence)) == Written(sequence, sequence, 100 + sequence, 100 + sequence, -1)
    assert refused(states, header(0)) is ErrorCode.out_of_order_sequence_number
    assert refused(states, header(7)) is ErrorCode.out_of_order_sequence_number
    assert refused(states, header(5, 2)) is ErrorCode.out_of_order_sequence_number, "same start, another batch"


def test_sequences_start_over_after_the_largest() -> None:
    states = ProducerStates()
    states.remember(header(LAST - 1, 4), 10, -1, 0)
    assert states.producers[1].batches[-1].last_sequence == 1
    assert states.check(header(2)) is None
    assert states.check(header(LAST - 1, 4)) is not None
    assert follows(LAST, 0)
    assert not follows(LAST, 1)


def test_a_new_epoch_starts_at_zero_and_fences_the_old() -> None:
    states = ProducerStates()
    states.remember(header(5, epoch=1), 10, -1, 0)
    assert refused(states, header(6, epoch=2)) is ErrorCode.out_of_order_sequence_number
    assert states.check(header(0, epoch=2)) is None
    states.remember(header(0, epoch=2), 11, -1, 0)
    assert refused(states, header(6, epoch=1)) is ErrorCode.invalid_producer_epoch
    assert states.check(header(0, epoch=2)) == Written(0, 0, 11, 11, -1)


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerStates().check(header(41)) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), max_size=30))
def test_a_snapshot_gives_back_the_same_state(appends: list[tuple[int, int, int]]) -> None:
    states = ProducerStates()
    for offset, (producer, epoch, count) in enumerate(appends):
        states.remember(header(offset, count, producer=producer, epoch=epoch), 10 * offset, offset, offset)
    again = decode(states.encode())
    assert again is not None
    assert {p: (s.epoch, s.used_ms, list(s.batches)) for p, s in again.producers.items()} == {
        p: (s.epoch, s.used_ms, list(s.batches)) for p, s in states.producers.items()
    }


def test_a_damaged_snapshot_is_no_snapshot() -> None:
    states = ProducerStates()
    states.remember(header(0), 0, -1, 0)
    encoded = states.encode()
    for at in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[at] ^= 1
        assert decode(bytes(damaged)) is None
        assert decode(encoded[:at]) is None


def test_a_producer_costs_few_bytes_and_its_snapshot_no_more_than_five_batches() -> None:
    def cost_bytes(batches: int) -> float:
        states, count = ProducerStates(), 2_000
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for sequence in range(batches):
            for producer in range(count):
                batch = header(sequence, producer=10**9 + producer)
                states.remember(batch, 10**7 + count * sequence + producer, -1, 10**12 + producer)
        cost = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(states.encode()) / count < 40 + 32 * min(batches, 5)
        return cost / count

    assert cost_bytes(1) < 300
    assert cost_bytes(7) < 450


def newcomers(states: ProducerStates, first: int, count: int, now_ms: int) -> None:
    for producer in range(first, first + count):
        assert states.check(header(0, producer=producer)) is None
        states.remember(header(0, producer=producer), producer, -1, now_ms)


def test_a_partition_forgets_those_that_wrote_least_recently_when_there_are_too_many() -> None:
    states = ProducerStates(most=1_000)
    newcomers(states, 0, 1_000, 1)
    assert len(states) == 1_000
    for at_ms in range(2, 50):
        for producer in (3, 700):
            states.remember(header(at_ms - 1, producer=producer), 5_000 + at_ms, -1, at_ms)
        newcomers(states, 1_000 * at_ms, 300, at_ms)
        assert len(states) <= 1_000
    assert {3, 700} < states.producers.keys(), "they write all the time"
    assert states.check(header(48, producer=3)) == Written(48, 48, 5_049, 5_049, -1)
    assert set(range(49_000, 49_300)) <= states.producers.keys(), "the newest are here"
    assert states.check(header(41, producer=4)) is None, "one that was forgotten may go on (KIP-360)"


def test_no_producer_with_an_open_transaction_is_forgotten() -> None:
    states = ProducerStates(most=100)
    for producer in range(30):
        states.remember(header(0, producer=producer, transactional=True), producer, -1, 0)
    newcomers(states, 1_000, 500, 1)
    assert set(range(30)) <= states.producers.keys()
    assert list(states.open) == list(range(30))
    assert len(states) <= 100


def test_where_nobody_may_be_forgotten_a_newcomer_costs_a_bounded_look_and_is_let_in() -> None:
    states = ProducerStates(most=5_000)
    for producer in range(5_000):
        states.remember(header(0, producer=producer, transactional=True), producer, -1, 0)
    newcomers(states, 10_000, 20, 1)
    assert set(range(5_000)) <= states.producers.keys()
    assert 5_000 < len(states) <= 5_020


def test_all_who_wrote_again_get_a_second_chance_and_the_limit_is_kept_nearly() -> None:
    """One look goes over a bounded number of producers, so that no append waits for long."""
    states = ProducerStates(most=5_000)
    newcomers(states, 0, 5_000, 1)
    for producer in range(5_000):
        states.remember(header(1, producer=producer), 5_000 + producer, -1, 2)
    for producer in range(10_000, 20_000):
        newcomers(states, producer, 1, 3)
        assert len(states) <= 5_000 + 6


def test_a_snapshot_with_more_producers_than_allowed_shrinks_as_others_come() -> None:
    before = ProducerStates()
    newcomers(before, 0, 3_000, 1)
    states = ProducerStates(most=1_000)
    found = decode(before.encode())
    assert found is not None
    states.become(found)
    newcomers(states, 10_000, 1_000, 2)
    assert len(states) <= 1_000
