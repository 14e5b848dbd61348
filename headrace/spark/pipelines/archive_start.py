"""Where an archive continues: at the lake's end offset of each partition, whatever its checkpoint says.

Computed once, before the stream starts. An existing checkpoint has the same or smaller offsets, and rows that the lake
has are skipped; a new checkpoint on an old lake must start where the lake ends, or there would be a gap. Invariant: the
offsets of a partition in a lake have no gap that the log could have filled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from headrace.client.metadata import Cluster
from headrace.model.failure import Failure
from headrace.spark.pipelines.configuration import SourceSection
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

Ends = Mapping[tuple[str, int], int]

LATEST = -1
PATIENCE_S = 10.0
PLACES = {"earliest": -2, "latest": -1}


def resumed(source: SourceSection, ends: Ends, lake: str) -> SourceSection:
    """The source, starting at the lake's end offsets; Failure if a log ends before the lake does."""
    if not ends:
        return source
    with Cluster(source.brokers.split(","), "headrace-pipeline", patience_s=PATIENCE_S) as cluster:
        partitions = subscribed(cluster, source)
        for place in partitions & ends.keys():
            refuse_if_shorter(place, log_end(cluster, *place), ends[place], lake)
    starting = json.dumps(starting_offsets(source.starting, partitions, ends))
    return SourceSection(
        brokers=source.brokers, topics=source.topics, pattern=source.pattern, starting=starting, options=source.options
    )


def subscribed(cluster: Cluster, source: SourceSection) -> set[tuple[str, int]]:
    """Every partition that the source reads, as of now."""
    topics = cluster.topics(source.topics or None)
    return {
        (name, partition.index)
        for name, topic in topics.items()
        if source.topics or (re.fullmatch(source.pattern, name) and not topic.is_internal)
        for partition in topic.partitions
    }


def starting_offsets(starting: str, partitions: set[tuple[str, int]], ends: Ends) -> dict[str, dict[str, int]]:
    """The lake's end offsets; for partitions that it does not have, those of the configuration."""
    named: dict[str, dict[str, int]] = {}
    if starting not in PLACES:
        try:
            named = json.loads(starting)
        except ValueError:
            raise Failure(f"source.starting is {starting!r}: write earliest, latest or offsets in JSON") from None
    offsets: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(partitions):
        wanted = PLACES.get(starting, named.get(topic, {}).get(str(partition), PLACES["earliest"]))
        offsets.setdefault(topic, {})[str(partition)] = ends.get((topic, partition), wanted)
    return offsets


def log_end(cluster: Cluster, topic: str, partition: int) -> int:
    question = Message(
        replica_id=-1,
        isolation_level=0,
        topics=[Message(name=topic, partitions=[Message(partition_index=partition, timestamp=LATEST)])],
    )
    answer = cluster.call_leader(topic, partition, ApiKey.LIST_OFFSETS, question).topics[0].partitions[0]
    if answer.error_code != ErrorCode.none:
        raise Failure(f"the end of partition {partition} of topic {topic} cannot be read: error {answer.error_code}")
    return int(answer.offset)


def refuse_if_shorter(place: tuple[str, int], end: int, lake_end: int, lake: str) -> None:
    """A log that ends before the lake does was recreated: its offsets are of other records than those in the lake."""
    if end < lake_end:
        raise Failure(
            f"partition {place[1]} of topic {place[0]} ends at offset {end}, but the lake {lake} has it up to "
            f"{lake_end}: the topic was recreated; use another lake"
        )
