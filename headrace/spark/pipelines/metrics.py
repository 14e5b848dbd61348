"""Prometheus metrics of a pipeline: a reporter that counts, and the HTTP endpoint.

Made by the launcher when the configuration has a `metrics` section. The numbers are those of the progress line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from headrace.model.failure import Failure
from headrace.spark.pipelines.configuration import Metrics
from headrace.spark.pipelines.progress import StreamFacts


class PipelineMetrics:
    def __init__(self, pipeline: str, name: str) -> None:
        self.registry = CollectorRegistry()
        self._labels = (pipeline, name)
        self._rows_seen: dict[str, int] = {}
        self._batch_seen: dict[str, int] = {}
        labels = ["pipeline", "name", "query"]

        def gauge(metric: str, words: str) -> Gauge:
            return Gauge(f"headrace_pipeline_{metric}", words, labels, registry=self.registry)

        def counter(metric: str, words: str) -> Counter:
            return Counter(f"headrace_pipeline_{metric}", words, labels, registry=self.registry)

        self._rows = counter("rows", "Rows taken in since the pipeline started.")
        self._batches = counter("batches", "Batches done since the pipeline started.")
        self._rate = gauge("rows_per_second", "Rows a second, smoothed over batches.")
        self._lag = gauge("lag_records", "Records in the topics beyond the last batch.")
        self._catch_up = gauge("catch_up_seconds", "Seconds until the lag is gone at this pace; -1: never.")
        self._batch = gauge("batch_seconds", "Seconds of the last batch.")
        self._tasks = gauge("tasks", "Tasks of the stages at work.")
        self._tasks_done = gauge("tasks_done", "Tasks of the stages at work that are done.")

    def note(self, text: str) -> None:
        """Notes are not metrics."""

    def stream(self, query: str, facts: StreamFacts) -> None:
        labels = (*self._labels, query)
        self._rows.labels(*labels).inc(facts.rows - self._rows_seen.get(query, 0))
        self._rows_seen[query] = facts.rows
        if self._batch_seen.get(query) != facts.batch:
            self._batches.labels(*labels).inc()
        self._batch_seen[query] = facts.batch
        self._rate.labels(*labels).set(facts.rows_per_s)
        self._batch.labels(*labels).set(facts.batch_s)
        if facts.lag is not None:
            self._lag.labels(*labels).set(facts.lag)
            behind = facts.catch_up_s if facts.catch_up_s is not None else -1
            self._catch_up.labels(*labels).set(behind if facts.lag else 0)

    def batch(self, done: int, total: int) -> None:
        self._tasks.labels(*self._labels, "").set(total)
        self._tasks_done.labels(*self._labels, "").set(done)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Results are not metrics."""

    def serve(self, where: Metrics) -> tuple[int, Callable[[], None]]:
        """Start the endpoint; returns its port and the function that stops it."""
        try:
            server, _thread = start_http_server(where.port, where.host, self.registry)
        except OSError as error:
            raise Failure(
                f"metrics: cannot listen on {where.host}:{where.port} ({error.strerror}): choose another port"
            ) from None

        def close() -> None:
            server.shutdown()
            server.server_close()

        return server.server_port, close
