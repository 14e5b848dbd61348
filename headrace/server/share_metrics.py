"""Share groups for the metrics endpoint: sessions, and for each share partition how far it is and what is in flight."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from headrace.api.share_sessions import ShareSessions

_LABELS = ["group", "topic", "partition"]


def share_metrics(sessions: ShareSessions) -> Iterator[Metric]:
    yield GaugeMetricFamily("headrace_share_sessions", "Members of share groups that fetch here.", len(sessions))
    held = GaugeMetricFamily(
        "headrace_share_records_in_flight", "Records that members of a share group work on.", labels=_LABELS
    )
    behind = GaugeMetricFamily(
        "headrace_share_offsets_behind", "Offsets from the start of a share partition to the end.", labels=_LABELS
    )
    for live in sessions.live:
        if live.deliveries is not None:
            place = [live.key.group, live.partition.topic, str(live.partition.index)]
            held.add_metric(place, live.deliveries.held)
            behind.add_metric(place, max(0, live.partition.high_watermark - live.deliveries.start_offset))
    yield held
    yield behind
