"""Exactly once: whatever the driver dies of, and wherever, the rows of a batch count once and no transaction stays."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.client.metadata import Cluster
from headrace.model.failure import Failure
from headrace.spark.sink import decision_log, decisions
from headrace.spark.sink.commit import WRITE_SINK
from headrace.spark.sink.decision_log import Superseded
from headrace.spark.sink.decisions import Decision
from headrace.spark.sink.names import Stream
from headrace.spark.sink.task import Written
from headrace.spark.sink.writers import committing
from headrace.testing.local_broker import LocalBroker
from headrace.wire import batches
from tests.broker.spark.sink.world import (
    BrokerElsewhere,
    Crash,
    CrashingNet,
    Driver,
    any_broker,
    committed,
    create_topic,
    fetched,
    needs_headrace,
    sink_options,
)
from tests.clients.patience import until

FIRST = [["a", "b", "c"], ["d"]]
SECOND = [["e"], ["f", "g"]]
names = (f"out-{uuid.uuid4()}" for _ in itertools.count())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker | BrokerElsewhere]:
    with any_broker(tmp_path_factory.mktemp("sink")) as running:
        yield running


@pytest.fixture
def driver(broker: LocalBroker) -> Driver:
    return new_driver(broker)


def new_driver(broker: LocalBroker) -> Driver:
    topic = next(names)
    create_topic(broker.bootstrap, topic)
    return Driver(sink_options(broker.bootstrap, topic))


def result(driver: Driver) -> list[str]:
    return committed(driver.options.bootstrap[0], driver.options.topic)


def rows(*batches: list[list[str]]) -> list[str]:
    return sorted(row for batch in batches for share in batch for row in share)


def test_batches_count_when_they_are_committed(driver: Driver) -> None:
    driver.run(0, FIRST)
    assert result(driver) == rows(FIRST)
    driver.run(1, SECOND)
    assert result(driver) == rows(FIRST, SECOND)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_at_any_request_of_a_commit_loses_and_doubles_nothing(
    broker: LocalBroker, after: bool
) -> None:
    for at in itertools.count():
        driver = new_driver(broker)
        driver.run(0, FIRST)
        net = CrashingNet(at, after=after)
        try:
            driver.run(1, SECOND, net)
        except Crash:
            driver.again().run(1, SECOND)
            assert result(driver) == rows(FIRST, SECOND), f"it died {at=} {after=}"
            driver.again().run(2, [["h"]])
            assert result(driver) == rows(FIRST, SECOND, [["h"]]), f"it died {at=} {after=}"
        else:
            assert net.requests <= at
            assert at > 15
            return


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_giving_up_at_any_request_leaves_a_batch_that_can_run_again(broker: LocalBroker, after: bool) -> None:
    for at in itertools.count():
        driver = new_driver(broker)
        told = driver.tasks(0, FIRST)
        net = CrashingNet(at, after=after)
        try:
            driver.abort(told, net)
        except Crash:
            driver.again().run(0, FIRST)
            assert result(driver) == rows(FIRST), f"it died {at=} {after=}"
        else:
            assert net.requests <= at
            assert at > 10
            assert result(driver) == []
            return


def test_a_decided_batch_is_finished_and_not_aborted_when_spark_gives_it_up(driver: Driver) -> None:
    told = driver.tasks(0, FIRST)
    leave_decided(driver, told)
    driver.abort(told)
    assert result(driver) == rows(FIRST)


def test_a_run_that_was_given_up_decides_nothing_any_more(driver: Driver) -> None:
    told = driver.tasks(0, FIRST)
    driver.abort(told)
    with pytest.raises(Failure, match="before it could be committed"):
        driver.commit(told)
    late = driver.task(0, 0, told[0].attempt.run, FIRST[0])
    with pytest.raises(Failure, match="was abandoned by Spark"):
        driver.commit([late])
    driver.again().run(0, FIRST)
    assert result(driver) == rows(FIRST)


def test_attempts_that_died_without_a_word_are_aborted_when_spark_gives_the_run_up(driver: Driver) -> None:
    told = driver.tasks(0, FIRST)
    driver.abort([told[0]._replace(member=None)])
    assert result(driver) == []


def test_tasks_of_a_decided_batch_write_nothing(driver: Driver) -> None:
    leave_decided(driver, driver.tasks(0, FIRST))
    again = driver.again()
    told = again.tasks(0, FIRST)
    assert [(written.member, written.was_decided) for written in told] == [(None, True)] * 2
    again.commit(told)
    assert result(driver) == rows(FIRST)


def test_a_task_without_rows_opens_no_transaction_and_a_batch_without_rows_asks_nobody(driver: Driver) -> None:
    told = driver.tasks(0, [[], []])
    assert [written.member for written in told] == [None, None]
    net = CrashingNet()
    driver.commit(told, net)
    assert net.requests == 0
    driver.run(1, [["a"], []])
    assert result(driver) == ["a"]


def test_attempts_that_lost_the_race_are_aborted_with_the_decision(driver: Driver) -> None:
    run = "0" * 32
    loser = driver.task(0, 0, run, FIRST[0])
    told = [driver.task(0, partition, run, share) for partition, share in enumerate(FIRST)]
    assert loser.member is not None
    driver.commit(told)
    assert result(driver) == rows(FIRST)


def test_orphans_of_a_driver_that_died_go_with_the_next_decision(driver: Driver) -> None:
    driver.tasks(0, FIRST)
    driver.again().run(0, FIRST)
    assert result(driver) == rows(FIRST)


def test_the_open_transactions_of_a_batch_that_is_not_decided_are_left_alone(driver: Driver) -> None:
    """A driver that is late sweeps too, and what a newer one has open is none of its business."""
    late = driver.tasks(0, FIRST)
    newer = driver.again()
    leave_decided(newer, newer.tasks(0, FIRST))
    newer.commit(newer.tasks(0, FIRST))
    ahead = newer.tasks(1, SECOND)
    with pytest.raises(Failure, match="decided by another driver"):
        driver.commit(late)
    newer.commit(ahead)
    assert result(driver) == rows(FIRST, SECOND)


def test_of_two_drivers_with_one_batch_one_fails_and_its_restart_goes_on(driver: Driver) -> None:
    other = driver.again()
    mine, theirs = driver.tasks(0, FIRST), other.tasks(0, FIRST)
    other.commit(theirs)
    with pytest.raises(Failure, match="decided by another driver while this one ran it"):
        driver.commit(mine)
    driver.again().run(0, FIRST)
    driver.again().run(1, SECOND)
    assert result(driver) == rows(FIRST, SECOND)


def test_an_older_driver_is_fenced_between_its_look_at_the_log_and_its_decision(driver: Driver) -> None:
    told = driver.tasks(0, FIRST)
    members = [written.member for written in told if written.member]
    with committing(driver.options) as older:
        ownership = older._log.take_over(driver.stream)
        driver.again().run(0, FIRST)
        with pytest.raises(Superseded, match="taken over"):
            older._decide(ownership, Decision(driver.stream, 0, told[0].attempt.run, "", tuple(members), done=False))
    assert result(driver) == rows(FIRST)


def test_a_decision_that_the_first_look_at_the_log_missed_is_found_before_another_is_made(driver: Driver) -> None:
    """As when a leader is new and does not show the end of its log yet."""
    told = driver.tasks(0, FIRST)
    members = tuple(written.member for written in told if written.member)
    driver.again().run(0, FIRST)
    with committing(driver.options) as committer:
        ownership = committer._log.take_over(driver.stream)
        ownership.committed = decision_log.CommittedEntries()
        assert ownership.last == Decision(driver.stream)
        with pytest.raises(Superseded, match="decided by another driver"):
            committer._decide(ownership, Decision(driver.stream, 0, told[0].attempt.run, "", members, done=False))
    driver.again().run(1, SECOND)
    assert result(driver) == rows(FIRST, SECOND)


def test_two_sinks_with_one_name_are_refused(broker: LocalBroker, driver: Driver) -> None:
    driver.run(0, FIRST)
    create_topic(broker.bootstrap, f"other-{driver.options.topic}")
    other = Driver(replace(driver.options, topic=f"other-{driver.options.topic}"), driver.stream)
    with pytest.raises(Failure, match="give each sink of a query its own name"):
        other.run(0, FIRST)
    named = Driver(replace(other.options, sink_name="second"), Stream(driver.stream.query, "second"))
    named.run(0, FIRST)
    assert result(named) == rows(FIRST)


@needs_headrace
def test_a_transaction_that_timed_out_before_the_decision_fails_a_batch_that_can_run_again(broker: LocalBroker) -> None:
    driver = new_driver(broker)
    driver.options = replace(driver.options, transaction_timeout_ms=60_000)
    told = driver.tasks(0, FIRST)
    broker.clock.advance(seconds=61)
    with pytest.raises(Failure, match=r"was it open longer than kafka\.transaction\.timeout\.ms"):
        driver.commit(told)
    driver.again().run(0, FIRST)
    assert result(driver) == rows(FIRST)


@needs_headrace
def test_a_transaction_that_timed_out_after_the_decision_is_an_error_that_names_the_batch(broker: LocalBroker) -> None:
    driver = new_driver(broker)
    driver.options = replace(driver.options, transaction_timeout_ms=60_000)
    leave_decided(driver, driver.tasks(7, FIRST))
    broker.clock.advance(seconds=61)
    for _ in range(2):  # it stays one
        with pytest.raises(Failure, match=r"batch 7 of query .* is decided, but the transaction of its task 0 .*Abort"):
            driver.again().run(7, FIRST)


@needs_headrace
def test_a_broker_that_restarts_between_decision_and_commits_changes_nothing(broker: LocalBroker) -> None:
    driver = new_driver(broker)
    leave_decided(driver, driver.tasks(0, FIRST))
    broker.kill()
    broker.restart()
    driver.again().run(0, FIRST)
    assert result(driver) == rows(FIRST)


def test_a_decision_of_many_transactions_is_cut_into_parts(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MEMBERS_IN_A_PART", 2)
    wide = [[f"row {partition}"] for partition in range(7)]
    leave_decided(driver, driver.tasks(0, wide))
    driver.again().run(0, wide)
    assert result(driver) == rows(wide)
    driver.again().run(1, SECOND)
    assert result(driver) == rows(wide, SECOND)


@needs_headrace
def test_decisions_are_kept_short_by_compaction_and_still_say_what_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(decision_log.SETTINGS, "segment.bytes", "2000")
    monkeypatch.setattr(decision_log, "PARTITIONS", 1)
    monkeypatch.setattr(decisions, "MEMBERS_IN_A_PART", 1)
    with LocalBroker(tmp_path) as own:
        driver = new_driver(own)
        writer = plain_writer(driver)
        commit_write(writer, writer.tasks(0, [["plain"]]))
        for batch in range(20):
            driver.run(batch, [[f"{batch} a"], [f"{batch} b"]])
        leave_decided(driver, driver.tasks(20, [["20 a"], ["20 b"]]))
        before = stored_records(own)
        for _ in range(3):
            own.clock.advance(minutes=1)
        assert stored_records(own) < before / 2
        own.restart()
        driver.again().run(20, [["20 a"], ["20 b"]])
        driver.again().run(21, [["21 a"]])
        expected = [f"{batch} {which}" for batch in range(21) for which in "ab"]
        assert result(driver) == sorted(["plain", *expected, "21 a"])


def stored_records(broker: LocalBroker) -> int:
    with Cluster([broker.bootstrap], "test") as cluster:
        part = fetched(cluster, decision_log.TOPIC, 0, 0, 1 << 24)
    return sum(header.record_count for _, header in batches.walk(part.records) if not header.is_control)


def leave_decided(driver: Driver, told: list[Written]) -> None:
    """The driver dies when its decision is written and nothing is committed yet."""
    for at in itertools.count():
        with committing(driver.options) as reader:
            if reader._log.last(driver.stream).batch == told[0].attempt.batch:
                return
        with pytest.raises(Crash):
            driver.commit(told, CrashingNet(at))


def test_a_plain_write_counts_as_a_whole_and_leaves_nothing_in_the_log(broker: LocalBroker, driver: Driver) -> None:
    writer = plain_writer(driver)
    told = writer.tasks(0, FIRST)
    commit_write(writer, told)
    assert result(driver) == rows(FIRST)
    with committing(driver.options) as committer:
        # Apache Kafka answers the end of a transaction before its markers are written.
        until("the decision is deleted", lambda: committer._log.last(writer.stream) == Decision(writer.stream))


def test_a_plain_write_whose_driver_died_is_finished_by_the_next_one(broker: LocalBroker, driver: Driver) -> None:
    writer = plain_writer(driver)
    leave_decided(writer, writer.tasks(0, FIRST))
    with committing(driver.options) as committer:
        committer.finish_writes()
        # Apache Kafka answers the end of a transaction before its markers are written.
        until("the decision is deleted", lambda: committer._log.last(writer.stream) == Decision(writer.stream))
    assert result(driver) == rows(FIRST)


def plain_writer(driver: Driver) -> Driver:
    return Driver(driver.options, Stream(uuid.uuid4().hex, WRITE_SINK))


def commit_write(driver: Driver, told: list[Written]) -> None:
    members = [written.member for written in told if written.member]
    with committing(driver.options) as committer:
        committer.commit_write(driver.stream, told[0].attempt.run, members)
