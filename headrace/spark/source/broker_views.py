"""The view by which the broker filters for a read with the option tags, made when the first read needs it.

Asked on the driver. Where the broker is headrace and the topic has tags, tasks fetch from a view that all clients with
an equal filter share; its offsets are those of the topic, so a plan means the same with and without it. Elsewhere, on
Apache Kafka for example, tasks filter by themselves. They do so in any case, so a view changes what is sent and never
what is returned.
"""

from __future__ import annotations

import logging

from headrace.client.blocking import ConnectionLost
from headrace.client.metadata import Cluster
from headrace.model.failure import Failure
from headrace.model.tag_filter import TAGS_ENABLE, TagFilter
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

logger = logging.getLogger(__name__)

_TOPIC_RESOURCE = 2
_MADE = (ErrorCode.none, ErrorCode.topic_already_exists)
View = tuple[str, str | None]  # name and id


def shared_view(cluster: Cluster, topic: str, filter_: TagFilter) -> View | None:
    """The view of `topic` by this filter, which exists by now; None if there cannot be one."""
    try:
        found = _known(cluster, filter_.view_name(topic))
        if found is None and _has_tags(cluster, topic):
            found = _made(cluster, topic, filter_)
    except (ConnectionLost, Failure) as error:
        logger.info("no view of topic %s can be used: %s", topic, error)
        found = None
    how = "in the tasks" if found is None else f"by its broker, through view {found[0]}"
    logger.info("topic %s is filtered by tags %s", topic, how)
    return found


def _known(cluster: Cluster, name: str) -> View | None:
    found = cluster.topics([name]).get(name)
    return None if found is None else (name, None if found.id is None else str(found.id))


def _has_tags(cluster: Cluster, topic: str) -> bool:
    resource = Message(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[TAGS_ENABLE])
    answer = cluster.call(ApiKey.DESCRIBE_CONFIGS, Message(resources=[resource]))
    entries = (entry for result in answer.results for entry in result.configs)
    return any((entry.name, entry.value) == (TAGS_ENABLE, "true") for entry in entries)


def _made(cluster: Cluster, topic: str, filter_: TagFilter) -> View | None:
    name = filter_.view_name(topic)
    configs = [Message(name=setting, value=value) for setting, value in filter_.settings(topic).items()]
    new = Message(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=configs)
    answer = cluster.call(ApiKey.CREATE_TOPICS, Message(topics=[new], timeout_ms=10_000, validate_only=False))
    if any(made.error_code not in _MADE for made in answer.topics):
        return None
    for _ in cluster.attempts():  # another broker may hear of it a moment later
        found = _known(cluster, name)
        if found is not None:
            return found
    return None
