"""Every figure of the bench: name, unit and goal. The rows of the table, in order.

Pure data, read by report.py. A goal is either on the ratio headrace / Apache Kafka or on headrace's own value. A
chapter on what Apache Kafka does not have names other peers, and becomes a table of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Against = Literal["ratio", "value"]


@dataclass(frozen=True)
class Goal:
    against: Against
    at_least: float | None = None
    at_most: float | None = None

    def met(self, figure: float) -> bool:
        if self.at_least is not None and figure < self.at_least:
            return False
        return self.at_most is None or figure <= self.at_most


@dataclass(frozen=True)
class Metric:
    """One row. The title may name sizes of the run in braces."""

    key: str
    title: str
    unit: str
    goal: Goal | None = None
    spread: bool = False  # the least and the largest of all rounds are told too


@dataclass(frozen=True)
class Chapter:
    title: str
    metrics: tuple[Metric, ...]
    peers: tuple[str, ...] | None = None  # instead of Apache Kafka


def times_at_least(bound: float) -> Goal:
    return Goal("ratio", at_least=bound)


def times_at_most(bound: float) -> Goal:
    return Goal("ratio", at_most=bound)


def _cpu(key: str, title: str, goal: Goal | None = None) -> Metric:
    return Metric(f"{key}.cpu", f"{title}: broker CPU per million messages", "s", goal)


def _cluster(size: int, title: str, rate: Goal | None = None, cpu: Goal | None = None) -> tuple[Metric, ...]:
    key = f"cluster{size}"
    return (
        Metric(f"{key}.rate", f"{title}: produce 100 B", "msg/s", rate),
        Metric(f"{key}.cpu", f"{title}: CPU of all per million messages", "s", cpu),
        Metric(f"{key}.memory", f"{title}: resident memory of all", "MB"),
        Metric(f"{key}.p50", f"{title}: one message acknowledged, p50", "ms"),
        Metric(f"{key}.p99", f"{title}: one message acknowledged, p99", "ms"),
    )


def _profile(name: str, figure: str, what: str, unit: str) -> Metric:
    return Metric(f"profile.{name}{figure}", f"{name}: {what}", unit)


def _rebalance(protocol: str, title: str, stopped: Goal | None) -> tuple[Metric, ...]:
    key = f"rebalance.{protocol}"
    return (
        Metric(f"{key}.settled", f"{title}: until all have their part", "s"),
        Metric(f"{key}.stopped", f"{title}: partitions that stay, yet stop", "%", stopped),
        Metric(f"{key}.kept", f"{title}: the longest of those stops", "ms"),
        Metric(f"{key}.moved", f"{title}: longest stop of one that moves", "ms"),
    )


def _failover(victim: str) -> tuple[Metric, ...]:
    bounds = {1000: Goal("value", at_most=5.0), 5000: Goal("value", at_most=10.0)}
    return tuple(
        Metric(f"failover.{victim}.{count}", f"{count:,} partitions, a {victim} is killed", "s", bounds.get(count))
        for count in (3, 100, 1000, 5000)
    )


def _idempotence(key: str, way: str) -> tuple[Metric, ...]:
    kept = f"{way}: idempotent, of plain's throughput"
    return (
        Metric(f"{key}.plain.rate", f"{way}, plain", "msg/s"),
        Metric(f"{key}.idempotent.rate", f"{way}, idempotent", "msg/s"),
        Metric(f"{key}.idempotent.kept", kept, "%", KEPT_BY_IDEMPOTENCE),
    )


def _lateness(key: str, title: str, goal: Goal | None) -> tuple[Metric, ...]:
    return (
        Metric(f"delays.{key}.late.p50", f"{title}: lateness at a waiting consumer, p50", "ms"),
        Metric(f"delays.{key}.late.p99", f"{title}: lateness at a waiting consumer, p99", "ms", goal),
        Metric(f"delays.{key}.late.max", f"{title}: the latest", "ms"),
        Metric(f"delays.{key}.stamped.p99", f"{title}: lateness by the server's own timestamps, p99", "ms"),
    )


def _view(layout: str, title: str, cpu: Goal | None) -> tuple[Metric, ...]:
    key = f"views.{layout}"
    return (
        Metric(f"{key}.all.mb", f"{title}: received by a consumer of everything", "MB"),
        Metric(f"{key}.view.mb", f"{title}: received by a consumer of the view", "MB"),
        Metric(f"{key}.bytes", f"{title}: of the bytes", "%", Goal("value", at_most=3.0)),
        Metric(f"{key}.all.cpu", f"{title}: broker CPU, everything", "s"),
        Metric(f"{key}.first.cpu", f"{title}: broker CPU, the view's first reader", "s"),
        Metric(f"{key}.view.cpu", f"{title}: broker CPU, later readers of the view", "s"),
        Metric(f"{key}.cpu", f"{title}: broker CPU of later readers, of everything's", "%", cpu),
    )


def _kept(key: str, title: str, percent: float | None) -> Metric:
    return Metric(key, title, "%", None if percent is None else Goal("value", at_least=percent), spread=True)


A_QUARTER = times_at_most(0.25)
KEPT_BY_IDEMPOTENCE = Goal("value", at_least=95.0)
_PROFILES = ("latency", "balanced", "throughput")

CHAPTERS = (
    Chapter(
        "Throughput",
        (
            Metric("produce.rate", "produce 100 B, large batches", "msg/s", times_at_least(1.5)),
            Metric("small.rate", "produce 100 B, 16 KB batches", "msg/s", times_at_least(2.5)),
            Metric("spread.rate", "produce 1 KB over 4 partitions", "msg/s", times_at_least(1.5)),
            Metric("consume.rate", "consume 100 B", "msg/s", times_at_least(1.2)),
        ),
    ),
    Chapter(
        "Cost",
        (
            _cpu("produce", "produce 100 B, large batches", A_QUARTER),
            _cpu("small", "produce 100 B, 16 KB batches", A_QUARTER),
            _cpu("spread", "produce 1 KB over 4 partitions", A_QUARTER),
            _cpu("consume", "consume 100 B", A_QUARTER),
            _cpu("ack", "one message at a time"),  # tuned for latency instead: see the goals there
            Metric("memory", "resident memory after this work", "MB", times_at_most(0.125)),
            Metric("startup", "start-up, until ApiVersions is answered", "s", times_at_most(0.125)),
        ),
    ),
    Chapter(
        "One message at a time",
        (
            Metric("ack.p50", "acknowledged, p50", "ms", times_at_most(0.5)),
            Metric("ack.p99", "acknowledged, p99", "ms", times_at_most(0.5)),
            Metric("ack.p999", "acknowledged, p99.9", "ms"),
            Metric("bare.p50", "acknowledged over a bare socket, p50", "ms", times_at_most(0.5)),
            Metric("bare.p99", "acknowledged over a bare socket, p99", "ms", times_at_most(0.5)),
            Metric("bare.p999", "acknowledged over a bare socket, p99.9", "ms"),
            Metric("end.p50", "at a waiting consumer, p50", "ms"),
            Metric("end.p99", "at a waiting consumer, p99", "ms"),
            Metric("end.p999", "at a waiting consumer, p99.9", "ms"),
        ),
    ),
    Chapter(
        "One message every 5 ms, beside a producer at full speed",
        (
            Metric("beside.p50", "acknowledged, p50", "ms"),
            Metric("beside.p90", "acknowledged, p90", "ms"),
            Metric("beside.p99", "acknowledged, p99", "ms"),
            Metric("beside.rate", "the other producer meanwhile", "msg/s"),
        ),
    ),
    Chapter(
        "Event-loop lag (bucket bounds)",
        (
            Metric("lag.p50", "during the work above, p50 at most", "ms"),
            Metric("lag.p99", "during the work above, p99 at most", "ms"),
            Metric("lag.p999", "during the work above, p99.9 at most", "ms"),
            Metric("crowd.p99", "with {many} producers and consumers, p99 at most", "ms"),
        ),
    ),
    Chapter(
        "Delivery",
        (
            Metric("plain.rate", "produce 100 B, plain (acks=all)", "msg/s"),
            Metric("idempotent.rate", "produce 100 B, idempotent", "msg/s"),
            Metric("idempotent.kept", "idempotent, of plain's throughput", "%", KEPT_BY_IDEMPOTENCE),
            _cpu("plain", "plain"),
            _cpu("idempotent", "idempotent"),
            *_idempotence("java", "through Kafka's Java producer"),
            *_idempotence("pipelined", "over a bare socket"),
            Metric("transactions.rate", "produce 100 B, a commit every 100 ms", "msg/s", times_at_least(1.3)),
            Metric("transactions.period", "time between commits", "ms"),
            _cpu("transactions", "the same"),
        ),
    ),
    Chapter(
        "Profiles of the Python SDK",
        (
            *(_profile(name, ".produce", "produce", "msg/s") for name in _PROFILES),
            *(_profile(name, ".consume", "consume", "msg/s") for name in _PROFILES),
            *(_profile(name, ".p99", "acknowledged at 1,000 msg/s, p99", "ms") for name in _PROFILES),
            Metric("profile.gain", "throughput over latency, messages a second", "x", Goal("value", at_least=3.0)),
            Metric("profile.wait", "latency over throughput, p99", "x", Goal("value", at_most=1 / 3)),
        ),
    ),
    Chapter(
        "One more member in a group of {members}",
        (
            *_rebalance("classic", "classic protocol", None),
            *_rebalance("consumer", "new protocol", Goal("value", at_most=0.0)),
        ),
    ),
    Chapter(
        "Clusters: every record on all brokers, acks=all",
        (
            *_cluster(1, "1 broker"),
            *_cluster(2, "2 brokers"),
            *_cluster(3, "3 brokers", times_at_least(1.3), times_at_most(0.5)),
        ),
    ),
    Chapter(
        "Failover: until all that a killed broker led takes acks=all again, sessions of 3 s",
        (*_failover("broker"), *_failover("controller")),
    ),
    Chapter(
        "Two racks 40 ms apart, a replica in each",
        (
            Metric("racks.acks-1.p50", "acks=1, beside the leader, p50", "ms"),
            Metric("racks.acks-1.p99", "acks=1, beside the leader, p99", "ms"),
            Metric("racks.acks-all.p50", "acks=all, beside the leader, p50", "ms"),
            Metric("racks.acks-all.p99", "acks=all, beside the leader, p99", "ms"),
            Metric("racks.leader.rate", "consume in the other rack, from the leader", "msg/s"),
            Metric("racks.follower.rate", "consume in the other rack, from its own replica", "msg/s"),
        ),
    ),
    Chapter(
        "Many partitions",
        (
            Metric("partitions.startup", "start-up with {partitions:,} partitions", "s", Goal("value", at_most=10.0)),
            Metric("partitions.written", "partitions that took a record", "", Goal("value", at_least=10_000)),
            Metric("partitions.create", "create them", "s"),
            Metric("partitions.produce", "write to each of them", "s"),
            Metric("partitions.memory", "resident memory after that start", "MB"),
        ),
    ),
    Chapter(
        "Many clients",
        (
            Metric("held.memory", "{held:,} connections held open: memory", "MB", Goal("value", at_most=100.0)),
            Metric("idle.cpu", "{idle:,} idle long-polling consumers: CPU", "% of a core", times_at_most(0.5)),
            Metric("active.few.produced", "10 producers and 10 consumers: produced", "msg/s"),
            Metric("active.many.produced", "{many} producers and {many} consumers: produced", "msg/s"),
            Metric("active.kept.produced", "kept of 10's throughput, produced", "%", Goal("value", at_least=70.0)),
            Metric("active.kept.consumed", "kept of 10's throughput, consumed", "%", Goal("value", at_least=70.0)),
        ),
    ),
    Chapter(
        "Delayed messages of 100 B",
        (
            Metric("delays.pending", "pending, due in an hour", ""),
            Metric("delays.load.rate", "loading them, one client in Python", "msg/s"),
            Metric("delays.memory", "memory that they added", "MB", Goal("value", at_most=100.0)),
            Metric("delays.restart", "restart with them, until all are known again", "s", Goal("value", at_most=5.0)),
            Metric("delays.restart.memory", "resident memory after the restart", "MB"),
            Metric("delays.burst.out", "{delays.burst:,} due at the same moment: until all have arrived", "s"),
            *_lateness("burst", "the same", None),
            *_lateness("steady", "{delays.steady_rate:,} due every second", Goal("value", at_most=100.0)),
        ),
        peers=("NATS JetStream", "Redis"),
    ),
    Chapter(
        "What delayed messages cost who does not use them",
        (
            _kept("delays.kept", "a topic that allows them and has none, of a plain topic's throughput", 90.0),
            _cpu("delays.kept.plain", "a plain topic"),
            _cpu("delays.kept.enabled", "a topic that allows them"),
            _kept("delays.pipelined.kept", "the same over a bare socket, 16 KB batches", 90.0),
            _cpu("delays.pipelined.kept.plain", "the same, a plain topic"),
            _cpu("delays.pipelined.kept.enabled", "the same, a topic that allows them"),
            _kept("delays.others", "a plain topic, of its throughput on a broker without them", 97.0),
        ),
        peers=(),
    ),
    Chapter(
        "Views that keep 1 % of {views.records:,} records of 100 B",
        (
            *_view("runs", "tags in runs", Goal("value", at_most=100.0)),
            *_view("random", "tags at random, lz4 batches of 16 KB", None),
        ),
        peers=(),
    ),
    Chapter(
        "Beside a dozen busy views and {views.pending:,} pending messages",
        (
            _kept("views.kept", "a plain topic, of its throughput on an idle broker", 95.0),
            _kept("views.direct.kept", "the same beside readers of the topics themselves, without views", None),
            Metric("views.fsync.alone", "one message every 5 ms, each flushed, p99", "ms", spread=True),
            Metric("views.fsync.beside", "the same while a view is read again and again, p99", "ms", spread=True),
            Metric("views.fsync.raised", "by how much the p99 rises", "x", Goal("value", at_most=1.5), spread=True),
        ),
        peers=(),
    ),
)


def titled(title: str, sizes: Mapping[str, object]) -> str:
    """A title with the sizes that it names; those of a section are written with a dot."""
    flat = dict(sizes)
    for section, values in sizes.items():
        if isinstance(values, Mapping):
            flat |= {f"{section}.{name}": value for name, value in values.items()}
    return re.sub(r"{([a-z_.]+)(:,)?}", lambda found: format(flat[found[1]], "," if found[2] else ""), title)
