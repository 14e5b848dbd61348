"""kio's message schemas as lists of slots, the form that the compilers use.

kio has a dataclass for each API, version and message. The compilers (reading.py, writing.py) do not use these classes;
they use a list of `Slot`s, one per field of one version, with the field's name, kind and default in the shape that
handlers see. Nothing here depends on bytes from the wire: everything is derived from kio's classes, once per API and
version, when that version is first used.
"""

from __future__ import annotations

import struct
from dataclasses import MISSING, Field, fields
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin

from kio.schema.index import api_key_map, schema_name_map
from msgspec import Struct

from headrace.wire import schema_modules

FIXED = {
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_EMPTY = {"string": "", "bytes": b"", "records": b"", "bool": False, "float64": 0.0}


class Message(SimpleNamespace):
    """A request, a response or a part of one; its fields are the schema's, see the conventions of messages.py."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this message has no field {name!r}")


class Slot(Struct, frozen=True):
    """One field of one version."""

    name: str
    kind: str  # a key of FIXED, or string, bytes, records, uuid, entity
    entity: type | None
    array: bool
    nullable: bool
    tag: int | None
    default: Any

    @property
    def is_fixed(self) -> bool:
        return self.kind in FIXED and not self.array


def knows(api_key: int, version: int) -> bool:
    """Whether this API has a schema of this version."""
    return api_key in api_key_map and version in schema_name_map[api_key_map[api_key]]


def api_name(api_key: int) -> str:
    return str(api_key_map[api_key])


@cache
def entity_of(api_key: int, version: int, direction: str) -> type:
    """kio's class of this "request" or "response"."""
    module = schema_modules.load(f"kio.schema.{api_key_map[api_key]}.v{version}.{direction}")
    for value in vars(module).values():
        kind = getattr(value, "__type__", None)
        if kind is not None and kind.name == direction:
            return value  # type: ignore[no-any-return]
    raise LookupError(f"kio has no {direction} in {module.__name__}")


def is_flexible(entity: type) -> bool:
    """Whether lengths are varints and tagged fields may follow (KIP-482)."""
    return bool(entity.__flexible__)  # type: ignore[attr-defined]


@cache
def header_version(api_key: int, version: int, direction: str) -> int:
    """The version of the header in front of this request or response."""
    return int(entity_of(api_key, version, direction).__header_schema__.__version__)  # type: ignore[attr-defined]


@cache
def slots_of(entity: type) -> tuple[Slot, ...]:
    return tuple(_slot(field) for field in fields(entity))


def _slot(field: Field[Any]) -> Slot:
    kind = field.metadata.get("kafka_type", "entity")
    annotation: Any = field.type
    nullable = array = False
    if get_origin(annotation) in (UnionType, Union):
        nullable = NoneType in get_args(annotation)
        annotation = next(arg for arg in get_args(annotation) if arg is not NoneType)
    if get_origin(annotation) is tuple:
        array = True
        annotation = get_args(annotation)[0]
    return Slot(
        name=field.name + "_ms" if kind.startswith("timedelta") else field.name,
        kind=kind,
        entity=annotation if kind == "entity" else None,
        array=array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=[] if array and field.default is not None else _default(field, kind, annotation, nullable),
    )


def _default(field: Field[Any], kind: str, annotation: Any, nullable: bool) -> Any:
    """The schema's default, in our shape; without one, null if the field is nullable, else zero or empty."""
    if kind == "entity" and not nullable:
        return Message(**{slot.name: slot.default for slot in slots_of(annotation)})
    if kind == "datetime_i64":
        return -1 if field.default is None else 0
    if field.default is MISSING:
        return None if nullable else _EMPTY.get(kind, 0)
    if kind.startswith("timedelta"):
        return round(field.default.total_seconds() * 1000)
    return int(field.default) if kind == "error_code" else field.default


@cache
def least_bytes(entity: type) -> int:
    """The size of the smallest entity of this kind, which limits how many can fit in a given number of bytes."""
    flexible = is_flexible(entity)
    least = 1 if flexible else 0
    for slot in slots_of(entity):
        if slot.tag is None:
            least += least_slot_bytes(slot, flexible)
    return least


def least_slot_bytes(slot: Slot, flexible: bool) -> int:
    if slot.array:
        return 1 if flexible else 4
    return 1 if slot.entity is not None and slot.nullable else least_item_bytes(slot, flexible)


def least_item_bytes(slot: Slot, flexible: bool) -> int:
    """The size of the smallest value of this kind, or of the smallest item if the slot is an array."""
    if slot.entity is not None:
        return least_bytes(slot.entity)
    if slot.kind in FIXED:
        return struct.calcsize(">" + FIXED[slot.kind])
    if slot.kind == "uuid":
        return 16
    if flexible:
        return 1
    return 2 if slot.kind == "string" else 4


@cache
def defaults(api_key: int, version: int, direction: str) -> dict[str, dict[str, Any]]:
    """Entity name -> field -> default."""
    known: dict[str, dict[str, Any]] = {}

    def visit(entity: type) -> None:
        into = known.setdefault(entity.__name__, {})
        for slot in slots_of(entity):
            into[slot.name] = slot.default
            if slot.entity is not None:
                visit(slot.entity)

    visit(entity_of(api_key, version, direction))
    return known


def default_elsewhere(api_key: int, direction: str, entity: str, field: str) -> Any:
    """The default of a field in the newest version that has it; KeyError if none has. Older versions are not loaded:
    each takes milliseconds, and a client's first request would wait for all of them."""
    for version in versions_of(api_key, newest_first=True):
        known = defaults(api_key, version, direction).get(entity, {})
        if field in known:
            return known[field]
    raise KeyError(field)


def versions_of(api_key: int, *, newest_first: bool = False) -> list[int]:
    return sorted(schema_name_map[api_key_map[api_key]], reverse=newest_first)
