"""An archive goes on where its lake ends, and never mixes two topics of one name."""

import pytest

from headrace.model.failure import Failure
from headrace.spark.pipelines.archive_start import starting_offsets

PARTITIONS = {("logs", 0), ("logs", 1), ("orders", 0)}


def test_what_the_lake_has_goes_on_and_the_rest_begins_as_configured() -> None:
    ends = {("logs", 0): 70, ("gone", 0): 5}
    assert starting_offsets("earliest", PARTITIONS, ends) == {"logs": {"0": 70, "1": -2}, "orders": {"0": -2}}
    assert starting_offsets("latest", PARTITIONS, ends) == {"logs": {"0": 70, "1": -1}, "orders": {"0": -1}}
    named = starting_offsets('{"logs": {"0": 3, "1": 9}}', PARTITIONS, ends)
    assert named == {"logs": {"0": 70, "1": 9}, "orders": {"0": -2}}
    with pytest.raises(Failure, match=r"source\.starting is 'sometime'"):
        starting_offsets("sometime", PARTITIONS, ends)
