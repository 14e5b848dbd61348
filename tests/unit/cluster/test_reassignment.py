"""Partitions on their way from one set of replicas to another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.cluster.reassignment import advanced, begun, cancelled, moves
from headrace.model.image import NO_LEADER, BrokerImage, PartitionImage
from headrace.wire.errors import ErrorCode, KafkaError

ALIVE = {number: BrokerImage(number, "", 0, None, number * 10) for number in range(1, 8)}


def state(replicas: tuple[int, ...], isr: tuple[int, ...] | None = None, **more: object) -> PartitionImage:
    isr = replicas if isr is None else isr
    leader = isr[0] if isr else NO_LEADER
    return replace(PartitionImage(0, replicas, isr, leader, 7, 5, tuple(b * 10 for b in isr)), **more)


def joined(partition: PartitionImage, *brokers: int) -> PartitionImage:
    return replace(
        partition,
        isr=partition.isr + brokers,
        isr_epochs=partition.isr_epochs + tuple(broker * 10 for broker in brokers),
    )


def test_new_replicas_are_added_first_and_old_ones_leave_when_all_are_in_sync() -> None:
    moving = begun(state((1, 2, 3)), (4, 3, 5), ALIVE, factor_may_change=False)
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 3, 5, 1, 2), (4, 5), (1, 2))
    assert (moving.leader, moving.isr, moving.leader_epoch) == (1, (1, 2, 3), 7)
    assert advanced(moving) is moving
    half = joined(moving, 4)
    assert advanced(half) is half
    there = advanced(joined(half, 5))
    assert (there.replicas, there.adding, there.removing) == ((4, 3, 5), (), ())
    assert (there.leader, there.isr, there.isr_epochs, there.leader_epoch) == (4, (3, 4, 5), (30, 40, 50), 8)


def test_a_leader_that_stays_leads_on_in_its_epoch() -> None:
    moving = joined(begun(state((1, 2)), (3, 1), ALIVE, factor_may_change=False), 3)
    there = advanced(moving)
    assert (there.leader, there.leader_epoch, there.replicas, there.isr) == (1, 7, (3, 1), (1, 3))


def test_another_order_of_the_same_replicas_is_there_at_once() -> None:
    turned = begun(state((1, 2, 3)), (3, 2, 1), ALIVE, factor_may_change=False)
    assert not moves(turned)
    assert (turned.replicas, turned.leader) == ((3, 2, 1), 1)


def test_a_move_that_is_called_off_ends_where_it_began() -> None:
    before = state((1, 2))
    moving = joined(begun(before, (3, 4), ALIVE, factor_may_change=False), 3)
    back = cancelled(moving)
    assert (back.replicas, back.isr, back.leader, back.leader_epoch) == ((1, 2), (1, 2), 1, 7)
    with pytest.raises(KafkaError) as refused:
        cancelled(before)
    assert refused.value.code is ErrorCode.no_reassignment_in_progress


def test_a_move_that_is_turned_round_keeps_what_the_partition_had_before_both() -> None:
    first = joined(begun(state((1, 2)), (3, 4), ALIVE, factor_may_change=False), 3)
    second = begun(first, (4, 5), ALIVE, factor_may_change=False)
    assert (second.replicas, second.adding, second.removing) == ((4, 5, 1, 2), (4, 5), (1, 2))
    assert second.isr == (1, 2)


def test_the_only_one_in_sync_is_never_thrown_out() -> None:
    moving = begun(state((1,)), (2,), ALIVE, factor_may_change=False)
    moved = replace(moving, isr=(2,), isr_epochs=(20,), leader=2, elr=((1, 10),))
    with pytest.raises(KafkaError) as refused:
        begun(moved, (3,), ALIVE, factor_may_change=False)
    assert refused.value.code is ErrorCode.eligible_leaders_not_available
    with pytest.raises(KafkaError):
        cancelled(moved)
    nobody = replace(moving, isr=(), isr_epochs=(), leader=NO_LEADER, elr=((2, 20), (1, 10)))
    with pytest.raises(KafkaError):
        cancelled(nobody)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.invalid_replica_assignment),
        ((1, 1), ErrorCode.invalid_replica_assignment),
        ((1, 9), ErrorCode.invalid_replica_assignment),
        ((1, 2, 3), ErrorCode.invalid_replication_factor),
    ],
)
def test_what_cannot_be_is_refused_with_kafkas_code(target: tuple[int, ...], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        begun(state((1, 2)), target, ALIVE, factor_may_change=False)
    assert refused.value.code is code
    assert refused.value.message


brokers = st.lists(st.sampled_from(sorted(ALIVE)), min_size=1, max_size=4, unique=True).map(tuple)


@given(brokers, st.lists(brokers, min_size=1, max_size=4), st.data())
def test_whatever_is_asked_for_on_the_way_somebody_with_everything_stays(
    before: tuple[int, ...], targets: list[tuple[int, ...]], data: st.DataObject
) -> None:
    now = state(before)
    for target in targets:
        try:
            now = begun(now, target, ALIVE, factor_may_change=True)
        except KafkaError:
            continue
        assert set(now.replicas) == set(target) | set(now.removing)
        late = [broker for broker in now.adding if broker not in now.isr]
        if late:
            now = joined(now, *data.draw(st.lists(st.sampled_from(late), unique=True)))
        after = advanced(now)
        assert set(after.isr) <= set(after.replicas)
        assert after.leader in after.isr
        assert after.leader_epoch == now.leader_epoch + (after.leader != now.leader)
        now = after
