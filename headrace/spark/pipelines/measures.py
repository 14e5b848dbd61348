"""The measures of a window: counts, rates, sums, percentiles and the most frequent values of a field.

Called by the aggregate pipeline. A measure is a word (`count`, `rate`) or a section with one kind in it. Invariant: a
measure of a field that the lines do not have is rejected before Spark starts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal

from headrace.model.failure import Failure
from headrace.spark.pipelines.configuration import Section

if TYPE_CHECKING:
    from pyspark.sql import Column

KINDS = ("sum", "avg", "min", "max", "distinct", "count_if", "percentile", "top")


class MeasureSection(Section, kw_only=True, frozen=True):
    """One kind of measure; `percentile` (0 to 1) and `top` (how many) also need the field: `of`."""

    sum: str | None = None
    avg: str | None = None
    min: str | None = None
    max: str | None = None
    distinct: str | None = None
    count_if: str | None = None
    percentile: float | None = None
    top: int | None = None
    of: str | None = None


Measure = Literal["count", "rate"] | MeasureSection


def check_measures(measures: Mapping[str, Measure], fields: Collection[str]) -> None:
    if not measures:
        raise Failure("measures is empty: name at least one, such as `requests: count`")
    for name, measure in measures.items():
        if isinstance(measure, MeasureSection):
            _check(f"measures.{name}", measure, fields)


def _check(key: str, measure: MeasureSection, fields: Collection[str]) -> None:
    kinds = [kind for kind in KINDS if getattr(measure, kind) is not None]
    if len(kinds) != 1:
        raise Failure(
            f"{key} needs exactly one kind, but has {', '.join(kinds) or 'none'}: choose one of {', '.join(KINDS)}"
        )
    kind = kinds[0]
    needs_field = kind in ("percentile", "top")
    if needs_field != (measure.of is not None):
        raise Failure(f"{key}: {'name the field: `of: NAME`' if needs_field else f'{kind} takes no `of`: remove it'}")
    if kind == "percentile" and not 0 <= (measure.percentile or 0) <= 1:
        raise Failure(f"{key}.percentile must be between 0 and 1, such as 0.95")
    if kind == "top" and not 1 <= (measure.top or 0) <= 1000:
        raise Failure(f"{key}.top must be between 1 and 1000")
    field = measure.of if needs_field else getattr(measure, kind)
    if kind != "count_if" and field not in fields:
        raise Failure(f"{key}: the lines have no field {field}: choose from {', '.join(sorted(fields))}")


def column(name: str, measure: Measure, window_ms: int) -> Column:
    """The measure as a Spark aggregate."""
    from pyspark.sql import functions as f

    found: Column
    if measure == "count":
        found = f.count(f.lit(1))
    elif measure == "rate":
        found = f.count(f.lit(1)) / f.lit(window_ms / 1000)
    elif measure.count_if is not None:
        found = f.count_if(f.expr(measure.count_if))
    elif measure.percentile is not None:
        found = f.percentile_approx(f.col(f"`{measure.of}`"), measure.percentile)
    elif measure.top is not None:
        found = f.call_function("approx_top_k", f.col(f"`{measure.of}`"), f.lit(measure.top))
    elif measure.distinct is not None:
        found = f.approx_count_distinct(f.col(f"`{measure.distinct}`"))
    else:
        kind, field = next((kind, value) for kind in KINDS if (value := getattr(measure, kind)) is not None)
        found = getattr(f, kind)(f.col(f"`{field}`"))
    return found.alias(name)
