"""Options of the source that name partitions in JSON: which are read, and a number (an offset, a time) for each.

Called by options.py. Pure. Every function takes the option's name for its error message.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition


def partition_lists(name: str, text: str) -> tuple[TopicPartition, ...]:
    """`{"orders": [0, 1]}`."""
    example = '{"orders": [0, 1], "returns": [0]}'
    found = _json_object(name, text, example)
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(_is_count(number) for number in partitions):
            raise Failure(f"option {name} has no list of partitions for topic {topic}: write JSON such as {example}")
    return tuple(sorted(TopicPartition(topic, number) for topic in found for number in set(found[topic])))


def partition_numbers(name: str, text: str) -> dict[TopicPartition, int]:
    """`{"orders": {"0": 23, "1": -2}}`."""
    example = '{"orders": {"0": 23, "1": 45}}'
    found = _json_object(name, text, example)
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in found.items():
        for partition, number in partitions.items() if isinstance(partitions, dict) else [("", None)]:
            if not partition.isdecimal() or isinstance(number, bool) or not isinstance(number, int):
                raise Failure(
                    f"option {name} has no number per partition for topic {topic}: write JSON such as {example}"
                )
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise Failure(f"option {name} is {text!r}: write JSON such as {example}")
    return found


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
