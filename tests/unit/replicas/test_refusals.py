"""Behind a batch that was refused for a reason that passes, an idempotent producer's records wait for it."""

from __future__ import annotations

import pytest

from headrace.log.producer_state import ProducerStates
from headrace.replicas.refusals import Refusals
from headrace.wire.batches import BatchHeader, read_header, walk
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.batches import from_producer, offsets
from tests.unit.replicas.trio import Trio, play

FULL = KafkaError(ErrorCode.kafka_storage_error, "no room")


def refused(refusals: Refusals, sequence: int, *, epoch: int = 0, now_ms: int = 0) -> ErrorCode | None:
    try:
        refusals.check(from_producer(sequence, epoch=epoch), {}, now_ms)
    except KafkaError as error:
        return error.code
    return None


def test_what_is_behind_shares_the_refusal_until_the_batch_has_come_again() -> None:
    refusals = Refusals()
    assert not refusals.by_producer
    refusals.refused(from_producer(5), FULL, 0)
    refusals.refused(from_producer(6), FULL, 0)
    assert refused(refusals, 6) is refused(refusals, 9) is ErrorCode.kafka_storage_error
    assert refused(refusals, 5) is None
    assert refused(refusals, 4) is None, "a retry of what was written before"
    refusals.accepted(from_producer(5))
    assert refused(refusals, 6) is None
    assert not refusals.by_producer


def test_sequences_start_over() -> None:
    refusals = Refusals()
    refusals.refused(from_producer(2**31 - 1), FULL, 0)
    assert refused(refusals, 0) is ErrorCode.kafka_storage_error
    assert refused(refusals, 2**31 - 2) is None


def test_a_higher_epoch_another_reason_and_time_end_it() -> None:
    for end in ("epoch", "reason", "time"):
        refusals = Refusals()
        refusals.refused(from_producer(5), FULL, 0)
        if end == "epoch":
            assert refused(refusals, 0, epoch=1) is None
        elif end == "reason":
            refusals.refused(from_producer(5), KafkaError(ErrorCode.message_too_large), 0)
        else:
            assert refused(refusals, 6, now_ms=600_001) is None
        assert not refusals.by_producer, end


def test_batches_without_a_producer_are_no_concern() -> None:
    refusals = Refusals()
    refusals.refused(memoryview(b"short"), FULL, 0)
    refusals.refused(from_producer(5, producer=-1), FULL, 0)
    assert not refusals.by_producer


def test_a_batch_that_another_leader_took_holds_nobody_back() -> None:
    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        one.disk.room_bytes = 10
        with pytest.raises(KafkaError):
            one.partition.append(from_producer(0))
        one.disk.room_bytes = None
        trio.elect(2)
        for sequence in range(3):
            two.partition.append(from_producer(sequence))
        await trio.alike()
        trio.elect(1)
        assert one.partition.append(from_producer(3)).base_offset == 3

    play(story)


def test_what_follows_directly_on_what_is_written_is_behind_nothing() -> None:
    refusals = Refusals()
    refusals.refused(from_producer(5), FULL, 0)
    states = ProducerStates()
    states.remember(read_header(from_producer(4, count=3)), 0, -1, 0)
    refusals.check(from_producer(7), states.producers, 0)
    assert not refusals.by_producer


@pytest.mark.parametrize("reason", ["disk", "replicas"])
def test_a_new_producers_second_batch_does_not_overtake_the_first(reason: str) -> None:
    async def story(trio: Trio) -> None:
        one = trio.nodes[1]
        partition = one.partition

        def send(sequence: int) -> None:
            partition.check_enough_replicas(from_producer(sequence))
            partition.append(from_producer(sequence))

        if reason == "disk":
            one.disk.room_bytes = 10
        else:
            trio.store(isr=(1,), isr_epochs=(1,))
        with pytest.raises(KafkaError) as first:
            send(0)
        if reason == "disk":
            one.disk.room_bytes = None
        else:
            trio.store(isr=(1, 2, 3), isr_epochs=(1, 1, 1))
        with pytest.raises(KafkaError) as second:
            send(1)
        assert first.value.code is second.value.code
        for sequence in range(3):
            send(sequence)
        assert offsets(partition.log) == [0, 1, 2]
        assert [batch.base_sequence for batch in _headers(trio)] == [0, 1, 2]

    play(story, min_insync_replicas=2)


def _headers(trio: Trio) -> list[BatchHeader]:
    log = trio.nodes[1].partition.log
    return [header for _, header in walk(log.read(0, 1 << 20, log.end_offset, at_least_one=True).load())]
