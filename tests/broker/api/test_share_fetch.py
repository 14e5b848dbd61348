"""Share groups as a client sees them, request by request, over real bytes."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.broker.api.share_client import ACCEPT, REJECT, RELEASE, RENEW, ShareClient, acquired, values


@pytest.fixture
def ann(broker: Any) -> Iterator[ShareClient]:
    with ShareClient(broker.port) as client:
        client.create_topic()
        client.initialize()
        yield client


def joined(ann: ShareClient, member: str, **other: Any) -> ShareClient:
    client = ShareClient(ann.socket.getpeername()[1], member, **other)
    client.topic_id = ann.topic_id
    return client


@pytest.fixture
def bob(ann: ShareClient) -> Iterator[ShareClient]:
    with joined(ann, "bob") as client:
        yield client


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_handed_out_accepted_and_gone(ann: ShareClient, version: int) -> None:
    ann.version = version
    ann.produce(b"a", b"b")
    ann.produce(b"c")
    answer = ann.fetch(wait_ms=10_000)
    assert acquired(answer) == [(0, 2, 1)]
    assert values(answer) == {0: b"a", 1: b"b", 2: b"c"}
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert ann.code((0, 2, ACCEPT)) == 0
    assert (ann.stored().start_offset, ann.stored().delivery_complete_count) == (3, 0)
    assert ann.take(wait_ms=0) == []


def test_a_record_is_with_one_member_at_a_time(ann: ShareClient, bob: ShareClient) -> None:
    ann.produce(b"a", b"b", b"c", b"d")
    assert ann.take(most=2, mode=1) == [(0, 1, 1)]
    assert bob.take() == [(2, 3, 1)]
    assert bob.code((0, 0, ACCEPT)) == ErrorCode.invalid_record_state
    assert ann.code((0, 1, [ACCEPT, RELEASE])) == 0
    assert bob.take() == [(1, 1, 2)]


def test_release_reject_and_the_stored_state(ann: ShareClient) -> None:
    ann.produce(*(b"%d" % at for at in range(6)))
    assert ann.take() == [(0, 5, 1)]
    assert ann.code((0, 0, RELEASE), (1, 2, REJECT), (4, 5, [ACCEPT, RELEASE])) == 0
    assert ann.stored().start_offset == 0
    assert ann.stored().delivery_complete_count == 3
    assert ann.take() == [(0, 0, 2), (5, 5, 2)]
    assert ann.code((3, 3, ACCEPT), (5, 5, ACCEPT)) == 0
    assert ann.code((0, 0, ACCEPT)) == 0
    assert ann.stored().start_offset == 6


def test_acknowledgements_may_come_with_the_next_fetch(ann: ShareClient) -> None:
    ann.produce(b"a")
    assert ann.take() == [(0, 0, 1)]
    ann.produce(b"b")
    answer = ann.fetch((0, 0, ACCEPT), wait_ms=5_000)
    assert acquired(answer) == [(1, 1, 1)]
    assert ann.stored().start_offset == 1
    answer = ann.fetch((0, 0, ACCEPT))
    (part,) = answer.responses[0].partitions
    assert (part.error_code, part.acknowledge_error_code) == (0, ErrorCode.invalid_record_state)
    assert part.records == b""


def test_all_batches_of_a_partition_fail_together(ann: ShareClient) -> None:
    ann.produce(b"a", b"b", b"c")
    assert ann.take() == [(0, 2, 1)]
    assert ann.code((0, 0, ACCEPT), (2, 3, ACCEPT)) == ErrorCode.invalid_request
    assert ann.code((1, 1, ACCEPT), (0, 0, ACCEPT)) == ErrorCode.invalid_request
    assert ann.code((0, 1, [ACCEPT, ACCEPT, ACCEPT])) == ErrorCode.invalid_request
    assert ann.code((0, 2, ACCEPT)) == 0


def test_a_waiting_fetch_is_woken_by_a_record(ann: ShareClient, bob: ShareClient) -> None:
    bob.send_fetch(wait_ms=20_000)
    ann.produce(b"a")
    assert acquired(bob.receive(ApiKey.SHARE_FETCH, 2)[1]) == [(0, 0, 1)]


def test_a_waiting_fetch_is_woken_by_a_release(ann: ShareClient, bob: ShareClient) -> None:
    ann.produce(b"a")
    assert ann.take() == [(0, 0, 1)]
    bob.send_fetch(wait_ms=20_000)
    assert ann.code((0, 0, RELEASE)) == 0
    assert acquired(bob.receive(ApiKey.SHARE_FETCH, 2)[1]) == [(0, 0, 2)]


def test_a_lock_that_runs_out_gives_the_record_to_another_until_the_limit(broker: Any, ann: ShareClient) -> None:
    ann.produce(b"a")
    for count in range(1, 6):
        assert ann.take() == [(0, 0, count)]
        broker.clock.advance(seconds=31)
    assert ann.code((0, 0, ACCEPT)) in (ErrorCode.invalid_record_state, ErrorCode.invalid_request)
    assert ann.take(wait_ms=0) == []
    assert ann.stored().start_offset == 1


def test_a_renewed_lock_lasts(broker: Any, ann: ShareClient, bob: ShareClient) -> None:
    ann.produce(b"a", b"b")
    assert ann.take() == [(0, 1, 1)]
    broker.clock.advance(seconds=20)
    assert ann.code((0, 0, RENEW)) == ErrorCode.invalid_request
    assert ann.code((0, 0, RENEW), is_renew_ack=True) == 0
    broker.clock.advance(seconds=20)
    assert bob.take() == [(1, 1, 2)]
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    assert ann.fetch((0, 0, RENEW), **nothing).responses[0].partitions[0].acknowledge_error_code == 0
    broker.clock.advance(seconds=20)
    assert ann.code((0, 0, ACCEPT)) == 0
    answer = ann.fetch((0, 0, RENEW), **(nothing | {"max_records": 1}))
    assert answer.error_code == ErrorCode.invalid_request


def test_a_session_that_ends_gives_back_what_it_holds(ann: ShareClient, bob: ShareClient) -> None:
    ann.produce(b"a", b"b")
    assert ann.take() == [(0, 1, 1)]
    assert ann.code((0, 0, ACCEPT), epoch=-1) == 0
    assert bob.take() == [(1, 1, 2)]
    bob.send_fetch(wait_ms=20_000)
    bob.socket.close()
    assert joined(ann, "cid").take() == [(1, 1, 3)]


def test_opening_a_session_anew_keeps_the_locks(ann: ShareClient, bob: ShareClient) -> None:
    ann.produce(b"a")
    assert ann.take() == [(0, 0, 1)]
    ann.epoch = 0
    assert ann.take(wait_ms=0) == []
    assert bob.take(wait_ms=0) == []
    assert ann.code((0, 0, ACCEPT)) == 0


def test_a_late_end_of_an_old_connection_leaves_the_new_session_alone(ann: ShareClient) -> None:
    ann.produce(b"a")
    with joined(ann, "ann") as again, joined(ann, "bob") as bob:
        assert ann.take() == [(0, 0, 1)]
        again.fetch()
        ann.socket.close()
        assert bob.take(wait_ms=300) == []
        assert again.code((0, 0, ACCEPT)) == 0


def test_session_epochs(ann: ShareClient) -> None:
    assert ann.fetch(epoch=1).error_code == ErrorCode.share_session_not_found
    assert ann.acknowledge(epoch=0).error_code == ErrorCode.invalid_share_session_epoch
    assert ann.acknowledge(epoch=-1).error_code == ErrorCode.share_session_not_found
    assert ann.fetch((0, 0, ACCEPT), epoch=0).error_code == ErrorCode.invalid_request
    assert ann.fetch().error_code == 0
    assert ann.fetch((0, 0, ACCEPT), epoch=0).error_code == ErrorCode.invalid_request
    assert ann.fetch(epoch=2).error_code == ErrorCode.invalid_share_session_epoch
    assert ann.fetch().error_code == 0, "the session is still there"
    assert ann.fetch(epoch=-1).error_code == 0
    assert ann.fetch().error_code == ErrorCode.share_session_not_found


def test_what_is_forgotten_is_released_and_not_fetched(ann: ShareClient, bob: ShareClient) -> None:
    ann.produce(b"a")
    assert ann.take() == [(0, 0, 1)]
    forgotten = [Message(topic_id=ann.topic_id, partitions=[0])]
    answer = ann.fetch((0, 0, RELEASE), forgotten_topics_data=forgotten)
    assert answer.responses[0].partitions[0].acknowledge_error_code == 0
    assert bob.take() == [(0, 0, 2)]


def test_partitions_are_named_once(ann: ShareClient) -> None:
    ann.produce(b"a")
    assert ann.take() == [(0, 0, 1)]
    ann.produce(b"b")
    assert ann.take(partitions=()) == [(1, 1, 1)]


def test_a_consumer_does_not_take_all_locks_while_others_wait(ann: ShareClient, bob: ShareClient) -> None:
    for _ in range(5):
        ann.produce(*([b"x"] * 500))
    assert bob.take(most=1, mode=1) == [(0, 0, 1)]
    for _ in range(5):
        ann.fetch(wait_ms=100)
    got = bob.take()
    assert sum(last - first + 1 for first, last, _ in got) >= 499


def test_the_start_of_the_log_moves(ann: ShareClient) -> None:
    ann.produce(b"a")
    ann.produce(b"b")
    assert ann.take(most=1, mode=1) == [(0, 0, 1)]
    part = Message(partition_index=0, offset=2)
    gone = Message(topics=[Message(name="orders", partitions=[part])], timeout_ms=10_000)
    assert ann.call(ApiKey.DELETE_RECORDS, 2, gone).topics[0].partitions[0].error_code == 0
    ann.produce(b"c")
    assert ann.take() == [(2, 2, 1)]
    assert ann.code((0, 0, ACCEPT)) == 0, "nobody is told off for what retention did"
    assert ann.code((2, 2, ACCEPT)) == 0
    assert ann.stored().start_offset == 3


def test_a_group_that_nobody_has_started_begins_at_the_end_and_stays_there(broker: Any, ann: ShareClient) -> None:
    ann.produce(b"old")
    ann.initialize(start=-1, epoch=2)
    assert ann.take(wait_ms=0) == []
    ann.fetch(wait_ms=500)
    ann.produce(b"new")
    broker.kill()
    broker.restart()
    with ShareClient(broker.port) as again:
        again.topic_id = ann.topic_id
        assert again.take(wait_ms=20_000) == [(1, 1, 1)]


def test_wrong_requests(ann: ShareClient) -> None:
    assert ann.fetch(epoch=0, partitions=(7,)).responses[0].partitions[0].error_code == (
        ErrorCode.unknown_topic_or_partition
    )
    ann.member = ""
    assert ann.fetch(epoch=0).error_code == ErrorCode.invalid_request


def test_groups_do_not_see_each_other(ann: ShareClient) -> None:
    ann.produce(b"a")
    with joined(ann, "bob", group="bakers") as baker:
        baker.initialize()
        assert ann.take() == [(0, 0, 1)]
        assert baker.take() == [(0, 0, 1)]


def test_nothing_is_lost_and_nothing_comes_back_after_a_kill(broker: Any, ann: ShareClient) -> None:
    ann.produce(*(b"%d" % at for at in range(10)))
    assert ann.take() == [(0, 9, 1)]
    assert ann.code((0, 3, ACCEPT), (5, 5, ACCEPT), (6, 6, RELEASE)) == 0
    broker.kill()
    broker.restart()
    with ShareClient(broker.port, "bob") as bob:
        bob.topic_id = ann.topic_id
        got = bob.take(wait_ms=20_000)
        assert sorted(at for first, last, _ in got for at in range(first, last + 1)) == [4, 6, 7, 8, 9]


def test_sessions_remember_so_many_partitions_and_no_more(broker_factory: Any) -> None:
    broker = broker_factory({"headrace.fetch.session.max.partitions": "5"})
    with ShareClient(broker.port) as ann, ShareClient(broker.port, "bob") as bob:
        ann.create_topic(6)
        bob.topic_id = ann.topic_id
        assert ann.fetch(partitions=(0, 1, 2)).error_code == 0
        assert bob.fetch(partitions=(0, 1)).error_code == 0
        assert bob.fetch(partitions=(2,)).error_code == ErrorCode.share_session_limit_reached
        bob.epoch = 0
        gone = [Message(topic_id=ann.topic_id, partitions=[1, 2])]
        assert ann.fetch(partitions=(), forgotten_topics_data=gone).error_code == 0
        assert bob.fetch(partitions=(0, 1, 2, 3)).error_code == 0
