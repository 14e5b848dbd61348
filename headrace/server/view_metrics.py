"""Views for Prometheus: what reading them has cost, and what they have kept from being sent.

Collected at each scrape; the broker plugs it into the endpoint (metrics.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from headrace.api.view_fetch import Views, view_counts
from headrace.model.image import ClusterImage


def view_metrics(views: Views, image: ClusterImage) -> Iterator[Metric]:
    labels = ["view"]
    scanned = CounterMetricFamily(
        "headrace_view_scanned_bytes", "Bytes of the base's log that reads of this view went over.", labels=labels
    )
    sent = CounterMetricFamily("headrace_view_sent_bytes", "Bytes that reads of this view found.", labels=labels)
    saved = CounterMetricFamily(
        "headrace_view_saved_bytes", "Bytes of the base's log that were not sent, as its readers filter.", labels=labels
    )
    for count in view_counts(views, image.topics_by_id):
        scanned.add_metric([count.name], count.scanned_bytes)
        sent.add_metric([count.name], count.sent_bytes)
        saved.add_metric([count.name], max(0, count.scanned_bytes - count.sent_bytes))
    yield from (scanned, sent, saved)
