"""Which names topics and groups may have. Checked before a name touches a path or the metadata."""

from __future__ import annotations

import re

MAX_TOPIC_NAME = 249
KRAFT_TOPIC = "__cluster_metadata"  # Kafka's own; no client may make it there, and tools take it for what Kafka keeps
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
    if not name:
        return "a topic's name must not be empty"
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if len(name) > MAX_TOPIC_NAME:
        return f"a topic's name has at most {MAX_TOPIC_NAME} characters, this one {len(name)}"
    if not _LEGAL_TOPIC.fullmatch(name):
        return f"the topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Equal for names that Kafka does not allow beside each other: '.' and '_' are one in the names of metrics."""
    return name.replace(".", "_")


def names_collide(one: str, other: str) -> bool:
    """Whether two topics differ in '.' and '_' only."""
    return one != other and collision_key(one) == collision_key(other)
