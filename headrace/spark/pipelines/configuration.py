"""Configurations of pipelines: parses YAML into typed sections, with errors that a user can act on.

Pure. Called by catalogue.py; each pipeline declares its own sections. Invariant: an unknown key, a missing key or a
value of another type is an error that names the key and its section; nothing is ignored or guessed.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import yaml

from headrace.model.failure import Failure

T = TypeVar("T")
AVAILABLE_NOW = "available-now"  # the trigger of a stream that catches up and ends
UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SPAN = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*)`)?")
MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?(.*)`)?")
PLACED = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)


class Section(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A part of a configuration."""


class SourceSection(Section, kw_only=True, frozen=True):
    """The topics that a pipeline reads. `options` are further options of the source, as Spark spells them."""

    brokers: str = "127.0.0.1:9092"
    topics: list[str] = []
    pattern: str = ""
    starting: str = "earliest"
    options: dict[str, str] = {}


class TopicTarget(Section, kw_only=True, frozen=True):
    """A topic that a pipeline writes to, by default on the brokers that it reads from."""

    topic: str
    brokers: str = ""
    options: dict[str, str] = {}


class Metrics(Section, kw_only=True, frozen=True):
    """The address of the Prometheus metrics; port 0 takes any free port."""

    host: str = "127.0.0.1"
    port: int


class Configuration(Section, kw_only=True, frozen=True):
    """The keys that every pipeline has. `spark` has settings of Spark, such as spark.sql.shuffle.partitions."""

    pipeline: str
    name: str = ""
    spark: dict[str, str] = {}
    metrics: Metrics | None = None
    checkpoint: str = ""  # where streams store their progress
    trigger: str = "5s"  # how often a stream runs a batch; `available-now`: catch up, then end

    def title(self) -> str:
        return self.name or self.pipeline


class StreamConfiguration(Configuration, kw_only=True, frozen=True):
    """The keys of a pipeline that is always a stream."""

    checkpoint: str


def read_document(text: str, where: str, changes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The YAML text as plain dicts and lists, with `a.b=value` changes applied."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Failure(f"{where} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise Failure(f"{where} is not a configuration: it must be a mapping that begins with `pipeline: NAME`")
    for path, value in (changes or {}).items():
        change(document, path.split("."), value)
    return document


def change(document: dict[str, Any], path: Sequence[str], value: str) -> None:
    for name in path[:-1]:
        below = document.setdefault(name, {})
        if not isinstance(below, dict):
            raise Failure(f"{'.'.join(path)} cannot be set: {name} is not a section")
        document = below
    document[path[-1]] = yaml.safe_load(value)


def convert(document: Mapping[str, Any], kind: type[T], where: str) -> T:
    """The document as a typed configuration; Failure names the first mistake."""
    try:
        return msgspec.convert(document, kind, strict=True)
    except msgspec.ValidationError as error:
        raise Failure(f"{where}: {explain(str(error), kind)}") from None


def explain(error: str, kind: type[Any]) -> str:
    """msgspec's error as a sentence about a key of the configuration."""
    if found := UNKNOWN.fullmatch(error):
        section = section_at(kind, found[2] or "")
        known = sorted(section.__struct_fields__) if section else []
        close = difflib.get_close_matches(found[1], known, 1)
        hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
        return f"unknown key {place(found[2], found[1])} ({hint})"
    if found := MISSING.fullmatch(error):
        return f"the key {place(found[2], found[1])} is missing"
    if found := PLACED.fullmatch(error):
        return f"{found[2] or 'the configuration'}: {found[1].replace('`', '')}"
    return error


def place(section: str | None, key: str) -> str:
    return f"{section}.{key}" if section else key


def section_at(kind: type[Any], path: str) -> type[Section] | None:
    """The section at a dotted path; None where it leads through a list or a mapping."""
    current: Any = kind
    for name in filter(None, path.split(".")):
        hints = typing.get_type_hints(current)
        if name not in hints:
            return None
        options = [hints[name], *typing.get_args(hints[name])]
        current = next((o for o in options if isinstance(o, type) and issubclass(o, Section)), None)
        if current is None:
            return None
    return typing.cast("type[Section]", current)


def span_ms(text: str, key: str) -> int:
    """A duration such as 10s, 5m or 1h30m, in milliseconds."""
    parts = SPAN.findall(text)
    if not parts or SPAN.sub("", text).strip():
        raise Failure(f"{key}: {text!r} is not a duration: write 10s, 5m, 1h or 2d")
    return sum(int(count) * UNIT_MS[unit] for count, unit in parts)


def spark_span(text: str, key: str) -> str:
    """A duration in Spark's format."""
    return f"{span_ms(text, key)} milliseconds"
