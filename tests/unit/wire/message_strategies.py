"""Any message of any schema, and the way from our shape to kio's classes, which are the oracle."""

from __future__ import annotations

import struct
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any

from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from headrace.wire.errors import ErrorCode
from headrace.wire.schemas import FIXED, Message, Slot, entity_of, slots_of

MESSAGES = [
    (api_key, version, direction)
    for api_key, name in api_key_map.items()
    for version in sorted(schema_name_map[name])
    for direction in ("request", "response")
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
blobs = st.binary(max_size=6) | st.binary(min_size=600, max_size=600)


def whole_numbers(code: str) -> st.SearchStrategy[int]:
    bits = struct.calcsize(code) * 8
    return st.integers(0, 2**bits - 1) if code.isupper() else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def values_of(slot: Slot) -> st.SearchStrategy[Any]:
    if slot.entity is not None:
        return messages_of(slot.entity)
    if slot.kind == "string":
        return texts
    if slot.kind in ("bytes", "records"):
        return blobs
    if slot.kind == "uuid":
        return st.none() | st.uuids()
    if slot.kind == "error_code":
        return st.sampled_from([int(code) for code in ErrorCode])
    if slot.kind == "timedelta_i64":
        return st.integers(-(2**40), 2**40)
    if slot.kind == "datetime_i64":  # kio counts in floats, which are exact that far
        return st.integers(-1 if slot.nullable else 0, 2**42)
    if slot.kind == "bool":
        return st.booleans()
    if slot.kind == "float64":
        return st.floats(allow_nan=False)
    return whole_numbers(FIXED[slot.kind])


def slot_values(slot: Slot) -> st.SearchStrategy[Any]:
    values = values_of(slot)
    if slot.array:
        values = st.lists(values, max_size=2)
    if slot.nullable and slot.kind not in FIXED and not (slot.tag is not None and slot.default is not None):
        values = st.none() | values
    return values | st.just(slot.default) if slot.tag is not None else values


@cache
def messages_of(entity: type) -> st.SearchStrategy[Message]:
    return st.builds(Message, **{slot.name: slot_values(slot) for slot in slots_of(entity)})


def messages(api_key: int, version: int, direction: str) -> st.SearchStrategy[Message]:
    return messages_of(entity_of(api_key, version, direction))


def kios_own(entity: type) -> type:
    """The class as kio has it, with all its methods, for one that schema_modules.py has loaded."""
    return getattr(import_module(entity.__module__), entity.__name__)  # type: ignore[no-any-return]


def to_kio(entity: type, message: Message) -> Any:
    """The same message as an object of kio's class."""
    pairs = zip(fields(entity), slots_of(entity), strict=True)
    return kios_own(entity)(**{field.name: _value_to_kio(slot, getattr(message, slot.name)) for field, slot in pairs})


def _value_to_kio(slot: Slot, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value_to_kio(slot, item) for item in value)
    if value is None or (slot.kind == "datetime_i64" and slot.nullable and value == -1):
        return None
    if slot.entity is not None:
        return to_kio(slot.entity, value)
    if slot.kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if slot.kind == "datetime_i64":
        return EPOCH + timedelta(milliseconds=value)
    return ErrorCode(value) if slot.kind == "error_code" else value
