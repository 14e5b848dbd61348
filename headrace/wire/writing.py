"""From messages to bytes: compiles one writer for each API, version and direction from its slots.

Called by messages.py alone. A writer writes the fields of its version, and the default of a field that the message does
not have. Small values are collected in one buffer; large `records` are not copied but spliced in between, so a Fetch
response is sent from the buffers into which it was read from disk. The items of all arrays are counted, so that nothing
long is written where there is no time for it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from headrace.wire.errors import TooManyItems
from headrace.wire.schemas import FIXED, Slot, entity_of, is_flexible, slots_of

Buffer = bytes | bytearray | memoryview

UNLIMITED = 1 << 62
_MAX_COPIED_BYTES = 512


class Out:
    """Bytes being written, and large buffers to be spliced in between without a copy."""

    __slots__ = ("allowed_items", "data", "splices")

    def __init__(self, allowed_items: int = UNLIMITED) -> None:
        self.data = bytearray()
        self.splices: list[tuple[int, Buffer]] = []
        self.allowed_items = allowed_items

    def chunks(self) -> list[Buffer]:
        """Everything that was written, as buffers to be sent in this order."""
        if not self.splices:
            return [self.data]
        view, chunks, at = memoryview(self.data), list[Buffer](), 0
        for position, buffer in self.splices:
            if position > at:
                chunks.append(view[at:position])
            chunks.append(buffer)
            at = position
        if at < len(view):
            chunks.append(view[at:])
        return chunks


Writer = Callable[[Out, Any], None]


def compile_writer(api_key: int, version: int, direction: str) -> Writer:
    return _entity_writer(entity_of(api_key, version, direction))


# --- values ---------------------------------------------------------------------------------------------------------


def _write_uvarint(data: bytearray, value: int) -> None:
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)


def _length_writer(flexible: bool, code: str) -> Callable[[bytearray, int], None]:
    """Writes a length or count; -1 means null."""
    if flexible:
        return lambda data, size: _write_uvarint(data, size + 1)
    pack = struct.Struct(code).pack

    def write(data: bytearray, size: int) -> None:
        data += pack(size)

    return write


def _string_writer(flexible: bool) -> Writer:
    write_length = _length_writer(flexible, ">h")

    def write(out: Out, value: str | None) -> None:
        if value is None:
            write_length(out.data, -1)
            return
        raw = value.encode()
        write_length(out.data, len(raw))
        out.data += raw

    return write


def _bytes_writer(flexible: bool) -> Writer:
    write_length = _length_writer(flexible, ">i")

    def write(out: Out, value: Buffer | list[Buffer] | None) -> None:
        if value is None:
            write_length(out.data, -1)
            return
        parts = value if isinstance(value, list) else [value]
        write_length(out.data, sum(len(part) for part in parts))
        for part in parts:
            if len(part) <= _MAX_COPIED_BYTES:
                out.data += part
            else:
                out.splices.append((len(out.data), part))

    return write


def _write_uuid(out: Out, value: Any) -> None:
    out.data += bytes(16) if value is None else value.bytes


def _fixed_writer(code: str) -> Writer:
    pack = struct.Struct(">" + code).pack

    def write(out: Out, value: Any) -> None:
        out.data += pack(value)

    return write


def _array_writer(item: Writer, flexible: bool) -> Writer:
    write_length = _length_writer(flexible, ">i")

    def write(out: Out, values: Any) -> None:
        if values is None:
            write_length(out.data, -1)
            return
        count = len(values)
        out.allowed_items -= count
        if out.allowed_items < 0:
            raise TooManyItems
        write_length(out.data, count)
        for value in values:
            item(out, value)

    return write


def _nullable_entity_writer(item: Writer) -> Writer:
    """A byte before the struct tells whether it is null (KIP-893)."""

    def write(out: Out, value: Any) -> None:
        if value is None:
            out.data.append(0xFF)
        else:
            out.data.append(1)
            item(out, value)

    return write


def _value_writer(slot: Slot, flexible: bool) -> Writer:
    item: Writer
    if slot.entity is not None:
        item = _entity_writer(slot.entity)
        if slot.nullable and not slot.array:
            item = _nullable_entity_writer(item)
    elif slot.kind == "string":
        item = _string_writer(flexible)
    elif slot.kind in ("bytes", "records"):
        item = _bytes_writer(flexible)
    elif slot.kind == "uuid":
        item = _write_uuid
    else:
        item = _fixed_writer(FIXED[slot.kind])
    return _array_writer(item, flexible) if slot.array else item


# --- entities -------------------------------------------------------------------------------------------------------


def _entity_writer(entity: type) -> Writer:
    flexible = is_flexible(entity)
    slots = slots_of(entity)
    plain = [slot for slot in slots if slot.tag is None]
    tagged = sorted((slot for slot in slots if slot.tag is not None), key=lambda slot: slot.tag or 0)
    scope: dict[str, Any] = {"uvarint": _write_uvarint, "Out": Out}
    for slot in slots:
        scope[f"default_{slot.name}"] = slot.default
        if slot.tag is not None or not slot.is_fixed:
            scope[f"write_{slot.name}"] = _value_writer(slot, flexible)
    lines = ["def write(out, message):", "    get = message.__dict__.get"]
    lines += _plain_lines(plain, scope)
    if flexible:
        lines += _tagged_lines(tagged) if tagged else ["    out.data.append(0)"]
    exec("\n".join(lines), scope)  # generated from kio's field lists alone, never from bytes of the wire
    return scope["write"]  # type: ignore[no-any-return]


def _value_of(slot: Slot) -> str:
    return f"get({slot.name!r}, default_{slot.name})"


def _plain_lines(slots: list[Slot], scope: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    run: list[Slot] = []

    def end_run() -> None:
        if run:
            label = f"pack_{run[0].name}"
            scope[label] = struct.Struct(">" + "".join(FIXED[slot.kind] for slot in run)).pack
            lines.append(f"    out.data += {label}({', '.join(_value_of(slot) for slot in run)})")
            run.clear()

    for slot in slots:
        if slot.is_fixed:
            run.append(slot)
            continue
        end_run()
        lines.append(f"    write_{slot.name}(out, {_value_of(slot)})")
    end_run()
    return lines


def _tagged_lines(slots: list[Slot]) -> list[str]:
    """Tagged fields are written in tag order, and only if they differ from their defaults."""
    lines = ["    present = []"]
    for slot in slots:
        default = f"default_{slot.name}"
        differs = "value" if slot.default == [] and not slot.nullable else f"value != {default}"
        lines.append(f"    value = {_value_of(slot)}")
        lines.append(f"    if value is not {default} and {differs}:")
        lines.append(f"        part = Out(out.allowed_items); write_{slot.name}(part, value)")
        lines.append("        out.allowed_items = part.allowed_items")
        lines.append(f"        present.append(({slot.tag}, b''.join(part.chunks())))")
    lines.append("    uvarint(out.data, len(present))")
    lines.append("    for tag, part in present:")
    lines.append("        uvarint(out.data, tag); uvarint(out.data, len(part)); out.data += part")
    return lines
