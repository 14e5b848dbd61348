"""From bytes to messages: compiles one reader for each API, version and direction from its slots.

A reader is straight-line Python: adjacent numbers share one unpack, each other field is one call. Called by messages.py
alone, which turns struct.error, IndexError and UnicodeDecodeError of a reader into Malformed. Invariant: every length
and count is checked against the remaining bytes before it is used.

A counting reader does the same, and counts the items of all arrays, and tagged fields, before it makes something of
them: `allow` says how many the next message may have. Only long messages are read by those, since an item has at least
one byte, so the usual request does not pay for it.
"""

from __future__ import annotations

import struct
import threading
import uuid
from collections.abc import Callable
from typing import Any

from headrace.wire.errors import Malformed, TooManyItems
from headrace.wire.schemas import (
    FIXED,
    Message,
    Slot,
    default_elsewhere,
    entity_of,
    is_flexible,
    least_item_bytes,
    slots_of,
)

Reader = Callable[[memoryview, int], tuple[Any, int]]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def compile_reader(api_key: int, version: int, direction: str, *, counting: bool = False) -> Reader:
    return _Compiler(api_key, direction, counting).entity_reader(entity_of(api_key, version, direction))


# --- counting -------------------------------------------------------------------------------------------------------


class _Allowed(threading.local):
    """How many items the message that this thread reads may still have."""

    items = 0


_allowed = _Allowed()


def allow(items: int) -> None:
    """Of the message that is read next in this thread, if its reader counts."""
    _allowed.items = items


def _counting(read_count: Reader) -> Reader:
    def read(buffer: memoryview, at: int) -> tuple[int, int]:
        count, at = read_count(buffer, at)
        if count > _allowed.items:
            raise TooManyItems
        if count > 0:
            _allowed.items -= count
        return count, at

    return read


# --- values ---------------------------------------------------------------------------------------------------------


def read_uvarint(buffer: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise Malformed("a varint is longer than five bytes")


def _compact_length(buffer: memoryview, at: int) -> tuple[int, int]:
    size = buffer[at]
    if size < 0x80:  # the usual case
        return size - 1, at + 1
    size, at = read_uvarint(buffer, at)
    return size - 1, at


def _int16_length(buffer: memoryview, at: int) -> tuple[int, int]:
    return _INT16.unpack_from(buffer, at)[0], at + 2


def _int32_length(buffer: memoryview, at: int) -> tuple[int, int]:
    return _INT32.unpack_from(buffer, at)[0], at + 4


def _take(buffer: memoryview, at: int, size: int) -> memoryview:
    if at + size > len(buffer):
        raise Malformed(f"a length of {size} bytes, but {len(buffer) - at} are left")
    return buffer[at : at + size]


def _string_reader(flexible: bool) -> Reader:
    length = _compact_length if flexible else _int16_length

    def read(buffer: memoryview, at: int) -> tuple[str | None, int]:
        size, at = length(buffer, at)
        if size < 0:
            return None, at
        return str(_take(buffer, at, size), "utf-8"), at + size

    return read


def _bytes_reader(flexible: bool, *, copy: bool) -> Reader:
    length = _compact_length if flexible else _int32_length

    def read(buffer: memoryview, at: int) -> tuple[bytes | memoryview | None, int]:
        size, at = length(buffer, at)
        if size < 0:
            return None, at
        view = _take(buffer, at, size)
        return (bytes(view) if copy else view), at + size

    return read


def _read_uuid(buffer: memoryview, at: int) -> tuple[uuid.UUID | None, int]:
    raw = bytes(_take(buffer, at, 16))
    return (uuid.UUID(bytes=raw) if any(raw) else None), at + 16


def _fixed_reader(code: str) -> Reader:
    packed = struct.Struct(">" + code)

    def read(buffer: memoryview, at: int) -> tuple[Any, int]:
        return packed.unpack_from(buffer, at)[0], at + packed.size

    return read


def _array_reader(item: Reader, flexible: bool, item_bytes: int, *, check_nulls: bool, counting: bool) -> Reader:
    length: Reader = _compact_length if flexible else _int32_length
    if counting:
        length = _counting(length)

    def read(buffer: memoryview, at: int) -> tuple[list[Any] | None, int]:
        count, at = length(buffer, at)
        if count < 0:
            return None, at
        if count * item_bytes > len(buffer) - at:
            raise Malformed(f"an array of {count} items in {len(buffer) - at} bytes")
        items = []
        for _ in range(count):
            value, at = item(buffer, at)
            items.append(value)
        if check_nulls and None in items:
            raise Malformed("null in an array")
        return items, at

    return read


def _nullable_entity_reader(item: Reader) -> Reader:
    """A byte before the struct tells whether it is null (KIP-893)."""

    def read(buffer: memoryview, at: int) -> tuple[Message | None, int]:
        return (None, at + 1) if buffer[at] >= 0x80 else item(buffer, at + 1)

    return read


# --- entities -------------------------------------------------------------------------------------------------------


class _Compiler:
    """Compiles the readers of one API's requests or responses."""

    def __init__(self, api_key: int, direction: str, counting: bool) -> None:
        self._api_key = api_key
        self._direction = direction
        self._counting = counting

    def entity_reader(self, entity: type) -> Reader:
        flexible = is_flexible(entity)
        slots = slots_of(entity)
        plain = [slot for slot in slots if slot.tag is None]
        tagged = [slot for slot in slots if slot.tag is not None]
        scope: dict[str, Any] = {"new": self._class_of(entity), "uvarint": read_uvarint, "Malformed": Malformed}
        scope["tag_count"] = _counting(read_uvarint) if self._counting else read_uvarint
        for slot in slots:
            if slot.tag is not None or not slot.is_fixed:
                scope[f"read_{slot.name}"] = self._value_reader(slot, flexible)
        lines = ["def read(buffer, at):", "    message = new()"]
        lines += _plain_lines(plain, scope)
        if flexible:
            lines += _tagged_lines(tagged, scope)
        lines.append("    return message, at")
        exec("\n".join(lines), scope)  # generated from kio's field lists alone, never from bytes of the wire
        return scope["read"]  # type: ignore[no-any-return]

    def _value_reader(self, slot: Slot, flexible: bool) -> Reader:
        item: Reader
        if slot.entity is not None:
            item = self.entity_reader(slot.entity)
            if slot.nullable and not slot.array:
                item = _nullable_entity_reader(item)
        elif slot.kind == "string":
            item = _string_reader(flexible)
        elif slot.kind in ("bytes", "records"):
            item = _bytes_reader(flexible, copy=slot.kind == "bytes")
        elif slot.kind == "uuid":
            item = _read_uuid
        else:
            item = _fixed_reader(FIXED[slot.kind])
        if not slot.array:
            return item
        has_length = slot.kind in ("string", "bytes")  # of the others only a uuid can be null, and may be
        item_bytes = least_item_bytes(slot, flexible)
        return _array_reader(item, flexible, item_bytes, check_nulls=has_length, counting=self._counting)

    def _class_of(self, entity: type) -> type[Message]:
        """The class of a decoded entity: fields that only other versions have return their defaults."""
        api_key, direction, name = self._api_key, self._direction, entity.__name__

        def absent(self: Message, field: str) -> Any:
            try:
                default = default_elsewhere(api_key, direction, name, field)
            except KeyError:
                raise AttributeError(f"no version of {name} has a field {field!r}") from None
            if default == []:
                return []
            setattr(type(self), field, default)
            return default

        return type(name, (Message,), {"__getattr__": absent})


def _plain_lines(slots: list[Slot], scope: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    run: list[Slot] = []

    def end_run() -> None:
        if run:
            packed = struct.Struct(">" + "".join(FIXED[slot.kind] for slot in run))
            label = f"unpack_{run[0].name}"
            scope[label] = packed.unpack_from
            targets = ", ".join(f"message.{slot.name}" for slot in run)
            lines.append(f"    {targets}{',' if len(run) == 1 else ''} = {label}(buffer, at)")
            lines.append(f"    at += {packed.size}")
            run.clear()

    for slot in slots:
        if slot.is_fixed:
            run.append(slot)
            continue
        end_run()
        lines.append(f"    message.{slot.name}, at = read_{slot.name}(buffer, at)")
        lines += _null_check(slot, "    ")
    end_run()
    return lines


def _tagged_lines(slots: list[Slot], scope: dict[str, Any]) -> list[str]:
    """Each tagged field is optional; unknown ones are skipped."""
    lines = []
    for slot in slots:
        scope[f"default_{slot.name}"] = slot.default
        lines.append(f"    message.{slot.name} = {'[]' if slot.default == [] else f'default_{slot.name}'}")
    lines += ["    if not buffer[at]: return message, at + 1"]  # the usual case
    lines += ["    count, at = tag_count(buffer, at)", "    for _ in range(count):"]
    lines += ["        tag, at = uvarint(buffer, at)", "        size, at = uvarint(buffer, at)"]
    lines += ["        end = at + size", "        if end > len(buffer): raise Malformed('a tagged field is truncated')"]
    for slot in slots:
        lines.append(f"        if tag == {slot.tag}:")
        lines.append(f"            message.{slot.name}, at = read_{slot.name}(buffer, at)")
        lines.append(f"            if at != end: raise Malformed('the size of tagged field {slot.name} is wrong')")
        lines += _null_check(slot, "            ")
    lines.append("        at = end")
    return lines


def _null_check(slot: Slot, indent: str) -> list[str]:
    if slot.nullable or slot.kind == "uuid":
        return []
    return [f"{indent}if message.{slot.name} is None: raise Malformed('{slot.name} is null')"]
