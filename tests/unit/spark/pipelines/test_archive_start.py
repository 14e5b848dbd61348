"""An archive goes on where its lake ends, and never mixes two topics of one name."""

import pytest

from headrace.model.failure import Failure
from headrace.spark.pipelines.archive_start import resumed, starting_offsets
from headrace.spark.pipelines.configuration import SourceSection
from headrace.testing.local_broker import LocalBroker
from tests.spark.topics import Topics

PARTITIONS = {("logs", 0), ("logs", 1), ("orders", 0)}


def test_what_the_lake_has_goes_on_and_the_rest_begins_as_configured() -> None:
    ends = {("logs", 0): 70, ("gone", 0): 5}
    assert starting_offsets("earliest", PARTITIONS, ends) == {"logs": {"0": 70, "1": -2}, "orders": {"0": -2}}
    assert starting_offsets("latest", PARTITIONS, ends) == {"logs": {"0": 70, "1": -1}, "orders": {"0": -1}}
    named = starting_offsets('{"logs": {"0": 3, "1": 9}}', PARTITIONS, ends)
    assert named == {"logs": {"0": 70, "1": 9}, "orders": {"0": -2}}
    with pytest.raises(Failure, match=r"source\.starting is 'sometime'"):
        starting_offsets("sometime", PARTITIONS, ends)


def test_a_log_that_is_shorter_than_the_lake_is_refused(broker: LocalBroker) -> None:
    topics = Topics(broker.bootstrap, "start")
    topic = topics.create("logs", 2)
    topics.fill(topic, 0, ["a", "b", "c"])
    by_name = SourceSection(brokers=broker.bootstrap, topics=[topic])
    by_pattern = SourceSection(brokers=broker.bootstrap, pattern=r"start\..*")
    for source in (by_name, by_pattern):
        assert resumed(source, {}, "lake") is source
        assert resumed(source, {(topic, 0): 2}, "lake").starting == f'{{"{topic}": {{"0": 2, "1": -2}}}}'
        with pytest.raises(Failure, match="ends at offset 3, but the lake lake has it up to 4: the topic was"):
            resumed(source, {(topic, 0): 4}, "lake")
