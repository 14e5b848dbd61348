"""The view that consumers with tags share, made when the first of them needs it.

Where the broker is headrace and the topic has tags, a consumer with a tag filter reads a view named
`TOPIC.view.DIGEST`, the digest being that of the filter, so equal filters share one. Where that cannot be, on Apache
Kafka or on a topic without tags, the client filters. Called by the SDK's consumer, the command line and Spark.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from headrace.model.tag_filter import TAG_HEADER, TAGS_ENABLE, TagFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TIMEOUT_S = 10.0
_LOOKS, _LOOK_S = 100, 0.05


def has_tags(bootstrap: Mapping[str, Any], topic: str) -> bool:
    """Whether the broker says that the topic has tags. `bootstrap` are settings of a client."""
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

    admin, resource = AdminClient(dict(bootstrap)), ConfigResource("topic", topic)
    try:
        settings = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    except KafkaException:
        return False
    told = settings.get(TAGS_ENABLE)
    return told is not None and told.value == "true"


def shared_view(bootstrap: Mapping[str, Any], topic: str, filter_: TagFilter) -> str | None:
    """The name of the view of `topic` by this filter, which exists by now; None if there cannot be one."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    if not has_tags(bootstrap, topic):
        return None
    admin, name = AdminClient(dict(bootstrap)), filter_.view_name(topic)
    try:
        if not _is_led(admin, name):
            _make(admin, NewTopic(name, -1, -1, config=filter_.settings(topic)))
        for _ in range(_LOOKS):
            if _is_led(admin, name):
                return name
            Event().wait(_LOOK_S)
    except KafkaException:
        pass  # it may not create topics: it filters by itself
    return None


def _make(admin: Any, view: Any) -> None:
    try:
        admin.create_topics([view])[view.topic].result(_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _is_led(admin: Any, name: str) -> bool:
    """Asks for all topics: to ask for one by name may create it."""
    found = admin.list_topics(timeout=_TIMEOUT_S).topics.get(name)
    return found is not None and found.error is None and all(each.leader >= 0 for each in found.partitions.values())


def tags_of(headers: Iterable[tuple[str, Any]] | None) -> list[str]:
    """The tags that these headers give a record."""
    found = []
    for name, value in headers or ():
        if name == TAG_HEADER and value is not None:
            try:
                found.append(value if isinstance(value, str) else bytes(value).decode())
            except UnicodeDecodeError:
                continue
    return found
