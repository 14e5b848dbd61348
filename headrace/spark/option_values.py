"""Values of Spark options, which are all text, as what they mean; a value that cannot be read is one clear line.

Called by the options of the source and of the sink. Pure. Every function takes the option's name, which stands in its
complaint.
"""

from __future__ import annotations

import json
import re
from typing import Any

from headrace.model.failure import Failure
from headrace.spark.positions import TopicPartition

_UNITS_MS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")


def boolean(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise Failure(f"option {name} is {text!r}: write true or false")
    return text.strip().lower() == "true"


def whole_number(name: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise Failure(f"option {name} is {text!r}: write a whole number, {least} at least")
    return value


def duration_ms(name: str, text: str) -> int:
    """`15m`, `10 seconds`, `500ms`; a bare number counts milliseconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    unit = found and (_UNITS_MS.get(found[2] or "ms"))
    if not found or not unit:
        raise Failure(f"option {name} is {text!r}: write a duration, such as 15m, 10s or 500ms")
    return int(found[1]) * unit


def names(name: str, text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise Failure(f"option {name} is {text!r}: write one name, or several with commas between them")
    return found


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
