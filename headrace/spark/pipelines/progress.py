"""The progress of a stream: rows per second, lag, time to catch up. Pure: the caller passes the time.

Called by watching.py with Spark's progress reports. Invariant: rates are smoothed over batches, so one slow batch
hardly changes them; there is a time to catch up only when the stream is faster than its producers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WEIGHT = 0.3  # of the newest batch in a rate: high enough to follow, low enough not to jump


@dataclass(frozen=True, slots=True)
class StreamFacts:
    batch: int
    rows: int  # in all batches since the start
    rows_per_s: float
    lag: int | None  # records in the topics after the last batch; None: not reported by the source
    catch_up_s: float | None  # None: never at this rate, or there is no lag
    batch_s: float


class StreamPace:
    """The facts of one query, batch by batch."""

    def __init__(self) -> None:
        self._rows = 0
        self._batch = -1
        self._last_report = ""  # Spark returns the latest reports repeatedly; their times ascend
        self._rows_per_s: float | None = None
        self._arriving_per_s: float | None = None
        self._last: tuple[float, int] | None = None  # time, and total end offset of the topics then

    def take(self, report: Mapping[str, Any], now_s: float) -> StreamFacts | None:
        """The facts after a report; None if this report has been taken before."""
        if report["timestamp"] <= self._last_report:
            return None
        self._last_report = report["timestamp"]
        self._batch = report["batchId"]
        rows = max(0, int(report.get("numInputRows") or 0))
        self._rows += rows
        batch_s = float(report.get("durationMs", {}).get("triggerExecution", 0)) / 1000
        if rows and batch_s:  # an empty batch tells nothing about the rate
            self._rows_per_s = smoothed(self._rows_per_s, rows / batch_s)
        lag, reach = positions(report.get("sources", ()))
        if reach is not None:
            if self._last is not None and now_s > self._last[0]:
                arriving = max(0, reach - self._last[1]) / (now_s - self._last[0])
                self._arriving_per_s = smoothed(self._arriving_per_s, arriving)
            self._last = now_s, reach
        pace = self._rows_per_s or 0.0
        gaining = pace - (self._arriving_per_s or 0.0)
        catch_up_s = lag / gaining if lag and gaining > 0 else None
        return StreamFacts(self._batch, self._rows, pace, lag, catch_up_s, batch_s)


def smoothed(before: float | None, now: float) -> float:
    return now if before is None else (1 - WEIGHT) * before + WEIGHT * now


def positions(sources: Any) -> tuple[int | None, int | None]:
    """The lag behind the topics and their total end offset, over all sources that report them."""
    lag = reach = 0
    told = False
    for source in sources:
        end, latest = offsets(source.get("endOffset")), offsets(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        told = True
        lag += sum(max(0, offset - end.get(key, 0)) for key, offset in latest.items())
        reach += sum(latest.values())
    return (lag, reach) if told else (None, None)


def offsets(value: Any) -> dict[tuple[str, str], int] | None:
    """{"topic": {"0": 7}} as a flat mapping, also when Spark passes it as text; None if it is something else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict) or not all(isinstance(parts, dict) for parts in value.values()):
        return None
    flat = {(topic, partition): offset for topic, parts in value.items() for partition, offset in parts.items()}
    return flat if all(isinstance(offset, int) for offset in flat.values()) else None
