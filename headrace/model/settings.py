"""What a setting is: a Kafka-style dotted name with a type, a default, limits and a meaning.

`topic_config` and `broker_config` are tables of these. A value arrives as text (from the wire, a file or the store),
is checked once by `Setting.parse`, and is typed from then on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from enum import IntEnum
from typing import Any

from msgspec import Struct

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
SHORT_MAX = 2**15 - 1


class SettingType(IntEnum):
    """The numbers are those of Kafka's DescribeConfigs response."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_HIGHEST = {SettingType.SHORT: SHORT_MAX, SettingType.INT: INT_MAX, SettingType.LONG: LONG_MAX}


class Setting(Struct, frozen=True):
    name: str
    type: SettingType
    default: Any  # None: no value unless one is set
    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False  # for a list
    pattern: str = ""  # of the text, or of each entry of a list
    form: str = ""  # the pattern in words
    broker_name: str | None = None  # the broker-wide setting that a topic falls back to
    broker_synonyms: tuple[tuple[str, int], ...] = ()  # names in coarser units, and the factor
    read_only: bool = False  # only at start, for broker settings

    def parse(self, text: str) -> Any:
        """The typed value; ValueError says in one sentence what is wrong."""
        value: Any
        text = text.strip()
        try:
            if self.type is SettingType.BOOLEAN:
                value = {"true": True, "false": False}[text.lower()]
            elif self.type in _HIGHEST:
                value = int(text)
            elif self.type is SettingType.DOUBLE:
                value = float(text)
            elif self.type is SettingType.LIST:
                value = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
            else:
                value = text
        except (ValueError, KeyError):
            raise ValueError(f"{self.name}={text!r} is not of type {self.type.name.lower()}") from None
        self._check(value, text)
        return value

    def _check(self, value: Any, text: str) -> None:
        if self.choices:
            parts = value if isinstance(value, tuple) else (self.text(value),)
            if not (parts or self.may_be_empty) or not set(parts) <= set(self.choices):
                raise ValueError(f"{self.name}={text!r}: choose from {', '.join(self.choices)}")
        elif self.pattern:
            parts = value if isinstance(value, tuple) else (value,)
            wrong = [part for part in parts if not re.fullmatch(self.pattern, part)]
            if wrong:
                raise ValueError(f"{self.name}={text!r}: {wrong[0]!r} is not of the form {self.form or self.pattern}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            high = self.high if self.high is not None else _HIGHEST.get(self.type)
            if not (self.low is None or value >= self.low) or not (high is None or value <= high):
                raise ValueError(f"{self.name}={text!r} is out of range: {self.range or f'up to {high}'}")

    @property
    def range(self) -> str:
        """The values allowed, for people."""
        if self.choices:
            return ", ".join(self.choices)
        if self.low is None:
            return "" if self.high is None else f"up to {self.high}"
        return f"{self.low} and more" if self.high is None else f"{self.low} to {self.high}"

    def text(self, value: Any) -> str | None:
        """The value as Kafka's tools show it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


ABSENT = "belongs to {}, which this version of headrace does not have"


def problem_with(
    name: str, text: str, owner: str, known: Mapping[str, Setting], elsewhere: Mapping[str, str]
) -> str | None:
    """What is wrong with setting `name` to `text` on `owner`, or None. For a known name, `elsewhere` says why no other
    value is allowed."""
    setting = known.get(name)
    if setting is None:
        return unknown_setting(name, owner, known, elsewhere)
    try:
        setting.parse(text)
    except ValueError as error:
        return f"{name}={text}: {elsewhere[name]}" if name in elsewhere else str(error)
    return None


def unknown_setting(name: str, owner: str, known: Collection[str], elsewhere: Mapping[str, str]) -> str:
    """Why `owner` has no such setting: it belongs to an unsupported feature, is set elsewhere, or is misspelled.

    `elsewhere` has a message for the user, by prefix of the name.
    """
    for prefix, reason in elsewhere.items():
        if name.startswith(prefix):
            return f"{name}: {reason}"
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{owner} has no setting {name!r}{hint}"
