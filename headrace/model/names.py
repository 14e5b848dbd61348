"""Which names topics and groups may have. Checked before a name is used in a path or in the metadata."""

from __future__ import annotations

import re

MAX_TOPIC_NAME = 249
KRAFT_TOPIC = "__cluster_metadata"  # reserved: tools expect Kafka's own metadata in it, so no client may create it
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
    """Equal for names that Kafka does not allow at the same time: names of metrics do not distinguish '.' and '_'."""
    return name.replace(".", "_")


def names_collide(one: str, other: str) -> bool:
    """Whether two topics differ in '.' and '_' only."""
    return one != other and collision_key(one) == collision_key(other)
