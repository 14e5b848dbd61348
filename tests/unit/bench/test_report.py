"""The table of the bench says what was measured, what was not, and which goals were met."""

from __future__ import annotations

import pytest

from bench import report
from bench.cores import MACHINE
from bench.figures import Samples
from bench.goals import Goal
from bench.latency import ECHO

SIZES = {
    "partitions": 10_000,
    "held": 2000,
    "idle": 1000,
    "many": 500,
    "members": 100,
    "delays": {"burst": 500_000, "steady_rate": 10_000},
    "views": {"records": 2_000_000, "pending": 1_000_000},
}


def about(*remarks: str) -> report.Circumstances:
    return report.Circumstances(
        "a machine", "today", {"headrace": "1", "Apache Kafka": "4"}, 5, "warm", 2, SIZES, remarks
    )


def samples_of(**values: tuple[float | None, float | None]) -> Samples:
    samples = Samples()
    for key, pair in values.items():
        for peer, value in zip((report.OURS, report.THEIRS), pair, strict=True):
            if value is not None:
                samples.add(key.replace("__", "."), peer, value)
    return samples


def test_a_row_holds_both_figures_their_ratio_the_goal_and_the_verdict() -> None:
    table = report.rows(samples_of(produce__rate=(2_000_000, 1_000_000), memory=(300, 1000)), SIZES)
    assert [row.cells for row in table if not row.heading] == [
        ("produce 100 B, large batches", "2.00M msg/s", "1.00M msg/s", "2.00x", ">= 1.5x", "met"),
        ("resident memory after this work", "300 MB", "1,000 MB", "0.30x", "<= 0.125x", "MISSED"),
    ]


def test_a_peer_that_is_missing_reads_as_not_available_and_is_not_judged() -> None:
    (_, row) = report.rows(samples_of(startup=(0.2, None)), SIZES)
    assert row.cells[1:] == ("0.20 s", "n/a", "n/a", "<= 0.125x", "not judged")


def test_a_goal_on_our_own_value_needs_no_other_peer() -> None:
    (_, row) = report.rows(samples_of(partitions__startup=(9.0, None)), SIZES)
    assert row.cells == ("start-up with 10,000 partitions", "9.00 s", "n/a", "n/a", "<= 10.0 s", "met")


def test_a_goal_may_compare_two_ways_of_the_same_broker() -> None:
    table = report.rows(samples_of(pipelined__idempotent__kept=(94.0, None), profile__gain=(3.5, None)), SIZES)
    assert [row.cells for row in table if not row.heading] == [
        ("over a bare socket: idempotent, of plain's throughput", "94.0 %", "n/a", "n/a", ">= 95.0 %", "MISSED"),
        ("throughput over latency, messages a second", "3.50x", "n/a", "n/a", ">= 3.00x", "met"),
    ]


def test_members_of_the_new_protocol_that_keep_their_partitions_may_not_stop() -> None:
    table = report.rows(samples_of(rebalance__classic__stopped=(99, 99), rebalance__consumer__stopped=(0, 0)), SIZES)
    assert table[0].cells[0] == "One more member in a group of 100"
    assert [row.cells[-1] for row in table[1:]] == ["", "met"]


def test_chapters_without_a_figure_are_left_out() -> None:
    assert report.rows(Samples(), SIZES) == []


@pytest.mark.parametrize(
    ("goal", "value", "ratio", "verdict"),
    [
        (Goal("ratio", at_least=1.5), 1.0, 1.5, "met"),
        (Goal("ratio", at_least=1.5), 9.0, 1.4, "MISSED"),
        (Goal("ratio", at_most=0.5), 1.0, 0.5, "met"),
        (Goal("value", at_most=10.0), 10.1, 0.1, "MISSED"),
        (Goal("value", at_most=10.0), None, None, "not judged"),
        (None, 1.0, 1.0, ""),
    ],
)
def test_verdicts(goal: Goal | None, value: float | None, ratio: float | None, verdict: str) -> None:
    assert report.verdict(goal, value, ratio) == verdict


def test_markdown_is_one_table_with_the_machine_above_and_the_remarks_below() -> None:
    text = report.as_markdown(samples_of(produce__rate=(2e6, 1e6)), about("Apache Kafka skipped: no java"))
    lines = text.splitlines()
    assert lines[0] == (
        "headrace 1, Apache Kafka 4; warm; both flush in the background every 1000 ms; "
        "median of 5 rounds; a machine; today"
    )
    assert lines[2:5] == ["|  | headrace | Apache Kafka | ratio | goal |  |", "|---|---|---|---|---|---|", lines[4]]
    assert lines[4] == "| **Throughput** |  |  |  |  |  |"
    assert lines[-1] == "Apache Kafka skipped: no java"


def test_mb_per_second_stand_beside_those_of_a_plain_file() -> None:
    samples = samples_of(produce__mb=(200.0, 100.0))
    for name in ("file.write", "file.write_synced", "file.read", "file.read_cold"):
        samples.add(name, "a plain file", 1000.0)
    (row,) = report.disk_rows(samples)
    assert row.cells == ("produce 100 B, large batches", "200 MB/s", "100 MB/s", "1,000 MB/s", "20%")
    assert "1,000 MB/s with fsync" in report.as_text(samples, about())


def test_the_generators_own_cost_says_how_far_any_broker_could_get() -> None:
    samples = samples_of(consume__rate=(None, 4e6), consume__generator=(None, 0.25))
    assert "consume: 0.25 s, at most 2.0x Kafka" in report.ceiling_lines(samples, cores=2)[0]


def test_what_idempotence_costs_the_client_is_told_below_the_table() -> None:
    assert report.idempotence_line(samples_of(plain__generator=(0.3, 0.3))) is None
    samples = samples_of(plain__generator=(0.3, 0.3), idempotent__generator=(0.33, 0.4))
    told = "plain and idempotent: 0.30 and 0.33 s, +10%"
    assert told in (report.idempotence_line(samples) or "")
    assert told in report.as_text(samples, about()).replace("\n", " ")


def test_processors_that_share_a_core_are_told_of() -> None:
    samples = samples_of(ack__p50=(0.08, 0.2))
    for share in (99.0, 97.4):
        samples.add("cores.together", MACHINE, share)
    assert report.cores_line(samples) is None
    samples.add("cores.together", MACHINE, 55.0)
    told = report.as_text(samples, about()).replace("\n", " ")
    assert "55 to 99 % of the speed of one alone, 97 % in the median" in told


def test_the_least_that_a_round_trip_takes_is_told_below_the_table() -> None:
    samples = samples_of(bare__p50=(0.1, 0.12))
    assert report.echo_line(samples) is None
    for label, milliseconds in (("p50", 0.066), ("p99", 0.141)):
        samples.add(f"bare.{label}", ECHO, milliseconds)
    assert "p50 66 µs, p99 141 µs" in report.as_text(samples, about())
    (_, row) = report.rows(samples, SIZES)
    assert row.cells[:4] == ("acknowledged over a bare socket, p50", "0.10 ms", "0.12 ms", "0.83x")


def test_what_kafka_does_not_have_is_a_table_of_its_own_with_its_own_peers() -> None:
    samples = Samples()
    for peer, lateness in ((report.OURS, 22.0), ("NATS JetStream", 270.0)):
        samples.add("delays.steady.late.p99", peer, lateness)
    samples.add("delays.burst.out", report.OURS, 1.5)
    assert report.rows(samples, SIZES) == []
    ((headings, body),) = report.other_tables(samples, SIZES)
    assert headings == ("Delayed messages of 100 B", "headrace", "NATS JetStream", "Redis", "goal", "")
    assert [row.cells for row in body] == [
        ("500,000 due at the same moment: until all have arrived", "1.50 s", "n/a", "n/a", "", ""),
        (
            "10,000 due every second: lateness at a waiting consumer, p99",
            *("22.00 ms", "270.00 ms", "n/a", "<= 100.00 ms", "met"),
        ),
    ]
    text = report.as_markdown(samples, about())
    assert "| Delayed messages of 100 B | headrace | NATS JetStream | Redis | goal |  |" in text
    assert "| ratio |" not in text


def test_pairs_are_told_with_their_spread_and_judged_by_their_median() -> None:
    samples = Samples()
    for kept in (99.0, 91.0, 96.5):
        samples.add("views.kept", report.OURS, kept)
    ((headings, (row,)),) = report.other_tables(samples, SIZES)
    assert headings[:2] == ("Beside a dozen busy views and 1,000,000 pending messages", "headrace")
    assert row.cells[1:] == ("96.5 % (91.0 to 99.0)", ">= 95.0 %", "met")
