"""How a stream stands: rows a second, lag, time to catch up. The arithmetic, without a clock of its own.

Called by the watcher of streams with Spark's progress reports. Invariant: rates are smoothed over batches, so one slow
batch does not swing them; a time to catch up is only told when the stream gains on its topics.
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
    rows: int  # of all batches since the start
    rows_per_s: float
    lag: int | None  # records that the topics hold beyond the last batch; None: the source does not tell
    catch_up_s: float | None  # None: never at this pace, or nothing to catch up with
    batch_s: float


class StreamPace:
    """The facts of one query, batch by batch."""

    def __init__(self) -> None:
        self._rows = 0
        self._batch = -1
        self._last_report = ""  # Spark hands out its last reports again and again; their times rise
        self._rows_per_s: float | None = None
        self._arriving_per_s: float | None = None
        self._last: tuple[float, int] | None = None  # when, and how far the topics reached then

    def take(self, report: Mapping[str, Any], now_s: float) -> StreamFacts | None:
        """The facts after a report; None if this report has been taken before."""
        if report["timestamp"] <= self._last_report:
            return None
        self._last_report = report["timestamp"]
        self._batch = report["batchId"]
        rows = max(0, int(report.get("numInputRows") or 0))
        self._rows += rows
        batch_s = float(report.get("durationMs", {}).get("triggerExecution", 0)) / 1000
        if rows and batch_s:  # an idle look at the topics says nothing of the pace
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
    """How far the topics are ahead of the batch, and how far they reach, over all sources that tell."""
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
    """{"topic": {"0": 7}} as a flat mapping, also when Spark hands it on as text; None if it is something else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict) or not all(isinstance(parts, dict) for parts in value.values()):
        return None
    flat = {(topic, partition): offset for topic, parts in value.items() for partition, offset in parts.items()}
    return flat if all(isinstance(offset, int) for offset in flat.values()) else None
