"""The Prometheus endpoint. Metrics are collected at each scrape, never on the hot path.

prometheus_client serves HTTP from its own thread; each scrape runs one collection on the event loop, so the broker's
state is read only on the thread that changes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from headrace import __version__
from headrace.model.failure import Failure
from headrace.replicas.host import ReplicaHost
from headrace.server.listener import Listener
from headrace.server.loop_lag import LoopLag
from headrace.server.requests_seen import Latencies, RequestsSeen

_SCRAPE_TIMEOUT_S = 10.0
Gather = Callable[[], Iterable[Metric]]


class MetricsServer(Collector):
    """Serves what `gather` returns at http://HOST:PORT/metrics."""

    def __init__(self, gather: Gather) -> None:
        self._gather = gather
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None

    def open(self, host: str, port: int) -> int:
        self._loop = asyncio.get_running_loop()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, _ = start_http_server(port, host, registry)
        except OSError as error:
            raise Failure(
                f"cannot serve metrics on {host}:{port}: {error.strerror}; choose another with --metrics"
            ) from None
        return int(self._server.server_port)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        async def on_loop() -> list[Metric]:
            return list(self._gather())

        assert self._loop is not None
        yield from asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(_SCRAPE_TIMEOUT_S)


def broker_metrics(
    host: ReplicaHost, listener: Listener, requests: RequestsSeen, api_names: dict[int, str], lag: LoopLag
) -> Iterator[Metric]:
    """Requests, connections, partitions and the event loop."""
    info = GaugeMetricFamily("headrace_info", "The running version, as a label.", labels=["version"])
    info.add_metric([__version__], 1)
    yield info
    seconds = HistogramMetricFamily(
        "headrace_request_seconds", "Time from a request's arrival to its reply, long polls included.", labels=["api"]
    )
    for api_key, latencies in requests.items():
        _add(seconds, [api_names.get(api_key, str(api_key))], latencies)
    yield seconds
    yield GaugeMetricFamily("headrace_connections", "Open connections.", len(listener.connections))
    yield CounterMetricFamily("headrace_connections_accepted", "Connections accepted since start.", listener.accepted)
    loop = HistogramMetricFamily("headrace_event_loop_lag_seconds", "How late the event loop ran, ten times a second.")
    _add(loop, [], lag.seen)
    yield loop
    yield GaugeMetricFamily("headrace_event_loop_lag_max_seconds", "The largest of these since the start.", lag.worst_s)
    yield from _partition_metrics(host)
    yield from _delay_metrics(host)


def _partition_metrics(host: ReplicaHost) -> Iterator[Metric]:
    labels = ["topic", "partition"]
    messages = CounterMetricFamily("headrace_messages_in", "Messages appended since the start.", labels=labels)
    bytes_in = CounterMetricFamily("headrace_bytes_in", "Bytes appended since the start.", labels=labels)
    bytes_out = CounterMetricFamily("headrace_bytes_out", "Bytes fetched since the start.", labels=labels)
    size = GaugeMetricFamily("headrace_log_bytes", "Bytes of the log on disk.", labels=labels)
    start = GaugeMetricFamily("headrace_log_start_offset", "The first offset in the log.", labels=labels)
    end = GaugeMetricFamily("headrace_log_end_offset", "The offset that the next record gets.", labels=labels)
    duplicates = CounterMetricFamily(
        "headrace_dedup_duplicates", "Messages acknowledged but not stored, since their id was known.", labels=labels
    )
    forgotten = CounterMetricFamily(
        "headrace_dedup_ids_forgotten",
        "Message ids dropped within their window, because headrace.dedup.max.bytes was reached.",
        labels=labels,
    )
    offline = GaugeMetricFamily("headrace_log_offline", "1 if this log is offline after a disk error.", labels=labels)
    for partition in host.partitions():
        name = [partition.topic, str(partition.index)]
        messages.add_metric(name, partition.messages_in)
        bytes_in.add_metric(name, partition.bytes_in)
        bytes_out.add_metric(name, partition.bytes_out)
        size.add_metric(name, partition.log.size_bytes)
        start.add_metric(name, partition.log.start_offset)
        end.add_metric(name, partition.log.end_offset)
        if partition.log.dedup is not None:
            duplicates.add_metric(name, partition.log.duplicates_dropped)
            forgotten.add_metric(name, partition.log.ids_forgotten)
        offline.add_metric(name, 0 if partition.log.offline is None else 1)
    yield from (messages, bytes_in, bytes_out, size, start, end, duplicates, forgotten, offline)


def _delay_metrics(host: ReplicaHost) -> Iterator[Metric]:
    """Of partitions that this broker leads and that have, or had, delayed records."""
    labels = ["topic", "partition"]
    pending = GaugeMetricFamily("headrace_delayed_pending", "Delayed records that wait to be due.", labels=labels)
    held = GaugeMetricFamily("headrace_delayed_held", "Delayed records in open transactions.", labels=labels)
    overdue = GaugeMetricFamily(
        "headrace_delayed_overdue_seconds", "For how long the oldest due record has not been released.", labels=labels
    )
    released = CounterMetricFamily("headrace_delayed_released", "Delayed records released.", labels=labels)
    cancelled = CounterMetricFamily("headrace_delayed_cancelled", "Delayed records cancelled.", labels=labels)
    lateness = HistogramMetricFamily(
        "headrace_delayed_lateness_seconds", "How late delayed records were released.", labels=labels
    )
    for partition in host.partitions():
        schedule, office = partition.log.schedule, partition.office
        if office is None or not (schedule or schedule.released or schedule.cancelled):
            continue
        name = [partition.topic, str(partition.index)]
        next_ms = schedule.next_ms()
        pending.add_metric(name, len(schedule.pending))
        held.add_metric(name, sum(map(len, schedule.held.values())))
        overdue.add_metric(name, 0 if next_ms is None else max(0, office.now_ms() - next_ms) / 1000)
        released.add_metric(name, schedule.released)
        cancelled.add_metric(name, schedule.cancelled)
        lateness.add_metric(name, list(partition.lateness.buckets()), partition.lateness.total_s)
    yield from (pending, held, overdue, released, cancelled, lateness)


def _add(family: HistogramMetricFamily, labels: list[str], latencies: Latencies) -> None:
    family.add_metric(labels, latencies.buckets(), latencies.total_s)
