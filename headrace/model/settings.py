"""What a setting is: a Kafka-style dotted name with a type, a default, limits and a meaning.

`topic_config` and `broker_config` are tables of these. A value arrives as text (from the wire, a file or the store),
is checked once by `Setting.parse`, and is typed from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class SettingType(IntEnum):
    """The numbers are those of Kafka's DescribeConfigs response."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: SettingType
    default: Any
    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    broker_name: str | None = None  # the broker-wide setting that a topic falls back to
    read_only: bool = False  # only at start, for broker settings

    def parse(self, text: str) -> Any:
        """The typed value; ValueError says in one sentence what is wrong."""
        value: Any
        text = text.strip()
        try:
            if self.type is SettingType.BOOLEAN:
                value = {"true": True, "false": False}[text.lower()]
            elif self.type in (SettingType.INT, SettingType.SHORT, SettingType.LONG):
                value = int(text)
            elif self.type is SettingType.DOUBLE:
                value = float(text)
            elif self.type is SettingType.LIST:
                value = tuple(part.strip() for part in text.split(",") if part.strip())
            else:
                value = text
        except (ValueError, KeyError):
            raise ValueError(f"{self.name}={text!r} is not a {self.type.name.lower()}") from None
        self._check(value, text)
        return value

    def _check(self, value: Any, text: str) -> None:
        if self.choices:
            for part in value if isinstance(value, tuple) else (value,):
                if part not in self.choices:
                    raise ValueError(f"{self.name}={text!r}: choose from {', '.join(self.choices)}")
            return
        if isinstance(value, int | float) and not isinstance(value, bool):
            high = self.high if self.high is not None else (LONG_MAX if self.type is SettingType.LONG else INT_MAX)
            if (self.low is not None and value < self.low) or value > high:
                low = "" if self.low is None else f"{self.low:g} to "
                raise ValueError(f"{self.name}={text!r} is out of range: {low}{high:g}")

    def text(self, value: Any) -> str:
        """The value as Kafka's tools show it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)
