"""Producer state: sequences in order, the last five batches known, wrap-around, and snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.producer_state import ProducerStates, Written, decode, follows
from headrace.wire.batches import BatchHeader
from headrace.wire.errors import ErrorCode, KafkaError

LAST = 0x7FFFFFFF


def header(sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0) -> BatchHeader:
    return BatchHeader(0, 49, 0, 2, 0, 0, count - 1, 0, 0, producer, epoch, sequence, count)


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
