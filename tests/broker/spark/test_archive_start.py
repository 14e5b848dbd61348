"""An archive is not begun on a topic that is shorter than its lake."""

import pytest

from headrace.model.failure import Failure
from headrace.spark.pipelines.archive_start import resumed
from headrace.spark.pipelines.configuration import SourceSection
from headrace.testing.local_broker import LocalBroker
from tests.spark.topics import Topics


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
