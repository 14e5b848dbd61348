"""A replay's plan covers what was asked for, in steps that neither overlap nor leave gaps."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.failure import Failure
from headrace.spark.lake.manifest import Contents
from headrace.spark.pipelines.replay_plan import Plan, Range, make_plan
from tests.unit.spark.lake.records import HOUR_MS, NOON_MS, append, every_minute, new_lake


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    lake = new_lake(tmp_path)
    append(lake, every_minute(0, 0, 120), every_minute(1, 50, 70), every_minute(0, 0, 30, topic="orders"))
    return lake.contents


def test_everything_is_planned_unless_a_part_is_asked_for(contents: Contents) -> None:
    plan = make_plan("lake", contents, [], {}, None, None, 50)
    assert plan.ranges == (Range("logs", 0, 0, 120), Range("logs", 1, 50, 70), Range("orders", 0, 0, 30))
    assert plan.steps == 4


def test_topics_offsets_and_times_narrow_the_plan(contents: Contents) -> None:
    assert make_plan("lake", contents, ["orders"], {}, None, None, 50).ranges == (Range("orders", 0, 0, 30),)
    by_offset = make_plan("lake", contents, ["logs"], {"logs": {0: [10, 90], 1: [60]}}, None, None, 50)
    assert by_offset.ranges == (Range("logs", 0, 10, 90), Range("logs", 1, 60, 70))
    second_hour = make_plan("lake", contents, ["logs"], {"logs": {0: [0]}}, NOON_MS + HOUR_MS, None, 50)
    assert second_hour.ranges == (Range("logs", 0, 60, 120),)
    assert make_plan("lake", contents, [], {}, None, NOON_MS, 50).ranges == ()


def test_a_topic_that_the_lake_does_not_have_is_named(contents: Contents) -> None:
    with pytest.raises(Failure, match="has no topic payments: choose from logs, orders"):
        make_plan("lake", contents, ["payments"], {}, None, None, 50)


@given(start=st.integers(0, 1000), length=st.integers(1, 1000), steps=st.integers(1, 50))
def test_steps_cover_a_range_without_overlap(start: int, length: int, steps: int) -> None:
    plan = Plan("lake", (Range("t", 0, start, start + length),), steps)
    slices = [part for step in range(steps) for part in plan.slices(step, step + 1)]
    assert [slices[0].start, *(part.end for part in slices)] == [*(part.start for part in slices), start + length]
    assert plan.slices(0, steps) == [Range("t", 0, start, start + length)]
