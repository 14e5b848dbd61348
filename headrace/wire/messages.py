"""Requests and responses between bytes and one version-free shape.

kio carries every Kafka schema as one dataclass per API and version. Handlers do not want to know the version, so this
module reads kio's field lists and compiles, once per API and version, a reader and a writer for a plain `Message`:

- A decoded request has every field of its version; reading a field that another version has gives that field's
  default, so a handler asks for what it needs and never for the version.
- A response is a `Message(**fields)` with whatever the handler knows; the writer takes the fields of the wanted
  version and leaves the others out. A field that is left away gets the schema's default, or zero, "" or [].

Conventions of the shape: times and durations are integers in milliseconds (kio's `max_wait` is `max_wait_ms` here),
error codes are integers, an all-zero uuid is None, arrays are lists. `records` stay what they are: a memoryview of
the request's buffer on the way in (valid only until the handler's first stage returns), any buffer on the way out,
which is sent without being copied.

Every length is checked against the bytes that are really there before anything is built from it.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from importlib import import_module
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin

from kio.schema.index import api_key_map, schema_name_map

from headrace.wire.errors import Malformed

Buffer = bytes | bytearray | memoryview

_FIXED = {
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
_MAX_SPLICE_FREE_BYTES = 512


class Message(SimpleNamespace):
    """A request, a response or a part of one; its fields are the schema's, see the module's conventions."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no version of this message has a field {name!r}")


# --- what kio knows -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Slot:
    """One field of one version, as the compilers need it."""

    name: str
    kind: str  # a key of _FIXED, or string, bytes, records, uuid, entity
    entity: type | None
    array: bool
    nullable: bool
    tag: int | None
    default: Any


@cache
def _entity(api_key: int, version: int, direction: str) -> type:
    module = import_module(f"kio.schema.{api_key_map[api_key]}.v{version}.{direction}")
    for value in vars(module).values():
        kind = getattr(value, "__type__", None)
        if kind is not None and kind.name == direction:
            return value  # type: ignore[no-any-return]
    raise LookupError(f"kio has no {direction} in {module.__name__}")


def _slots(entity: type) -> list[_Slot]:
    return [_slot(field) for field in fields(entity)]


def _slot(field: Field[Any]) -> _Slot:
    kind = field.metadata.get("kafka_type", "entity")
    annotation = field.type
    nullable = array = False
    if get_origin(annotation) in (UnionType, Union):
        nullable = NoneType in get_args(annotation)
        annotation = next(arg for arg in get_args(annotation) if arg is not NoneType)
    if get_origin(annotation) is tuple:
        array = True
        annotation = get_args(annotation)[0]
    name = field.name + "_ms" if kind.startswith("timedelta") else field.name
    return _Slot(
        name=name,
        kind=kind,
        entity=annotation if kind == "entity" else None,  # type: ignore[arg-type]
        array=array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=_default(field, kind, annotation, array, nullable),
    )


def _default(field: Field[Any], kind: str, annotation: Any, array: bool, nullable: bool) -> Any:
    if array:
        return None if nullable and field.default is None else []
    if kind == "entity":
        return None if nullable else Message(**{slot.name: slot.default for slot in _slots(annotation)})
    if field.default is not MISSING:
        if kind.startswith("timedelta"):
            return int(field.default.total_seconds() * 1000)
        if kind == "datetime_i64":
            return -1 if field.default is None else int(field.default.timestamp() * 1000)
        if kind in _FIXED:
            return int(field.default)
        return field.default
    if nullable or kind == "uuid":
        return None
    return {"string": "", "bytes": b"", "records": b"", "bool": False}.get(kind, 0)


@cache
def _versions(api_key: int) -> tuple[int, ...]:
    return tuple(sorted(schema_name_map[api_key_map[api_key]]))


@cache
def _defaults_of_all_versions(api_key: int, direction: str) -> dict[str, dict[str, Any]]:
    """Entity name -> field -> default, over all versions; the newest version that has a field decides."""
    known: dict[str, dict[str, Any]] = {}

    def visit(entity: type) -> None:
        into = known.setdefault(entity.__name__, {})
        for slot in _slots(entity):
            into[slot.name] = slot.default
            if slot.entity is not None:
                visit(slot.entity)

    for version in _versions(api_key):
        visit(_entity(api_key, version, direction))
    return known


# --- reading --------------------------------------------------------------------------------------------------------


def _read_uvarint(buffer: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise Malformed("a varint of more than five bytes")


def _take(buffer: memoryview, at: int, size: int) -> memoryview:
    if size < 0 or at + size > len(buffer):
        raise Malformed(f"a length of {size} bytes where {len(buffer) - at} are left")
    return buffer[at : at + size]


def _length(buffer: memoryview, at: int, flexible: bool, width: str) -> tuple[int, int]:
    """A length or count; -1 means null."""
    if flexible:
        size, at = _read_uvarint(buffer, at)
        return size - 1, at
    size = struct.unpack_from(width, buffer, at)[0]
    return size, at + (2 if width == ">h" else 4)


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise Malformed(f"null where {name} is required")
    return value


def _string_reader(flexible: bool) -> Callable[[memoryview, int], tuple[str | None, int]]:
    def read(buffer: memoryview, at: int) -> tuple[str | None, int]:
        size, at = _length(buffer, at, flexible, ">h")
        if size < 0:
            return None, at
        return str(_take(buffer, at, size), "utf-8"), at + size

    return read


def _bytes_reader(flexible: bool, copy: bool) -> Callable[[memoryview, int], tuple[Any, int]]:
    def read(buffer: memoryview, at: int) -> tuple[Any, int]:
        size, at = _length(buffer, at, flexible, ">i")
        if size < 0:
            return None, at
        view = _take(buffer, at, size)
        return (bytes(view) if copy else view), at + size

    return read


def _read_uuid(buffer: memoryview, at: int) -> tuple[uuid.UUID | None, int]:
    raw = bytes(_take(buffer, at, 16))
    return (uuid.UUID(bytes=raw) if any(raw) else None), at + 16


def _array_reader(item: Callable[[memoryview, int], tuple[Any, int]], flexible: bool) -> Callable[..., Any]:
    def read(buffer: memoryview, at: int) -> tuple[list[Any] | None, int]:
        count, at = _length(buffer, at, flexible, ">i")
        if count < 0:
            return None, at
        if count > len(buffer) - at:
            raise Malformed(f"an array of {count} in {len(buffer) - at} bytes")
        items = []
        for _ in range(count):
            value, at = item(buffer, at)
            items.append(value)
        return items, at

    return read


def _fixed_reader(code: str) -> Callable[[memoryview, int], tuple[Any, int]]:
    packed = struct.Struct(">" + code)

    def read(buffer: memoryview, at: int) -> tuple[Any, int]:
        return packed.unpack_from(buffer, at)[0], at + packed.size

    return read


def _nullable_entity_reader(item: Callable[[memoryview, int], tuple[Any, int]]) -> Callable[..., Any]:
    def read(buffer: memoryview, at: int) -> tuple[Any, int]:
        present = struct.unpack_from(">b", buffer, at)[0]
        return (None, at + 1) if present < 0 else item(buffer, at + 1)

    return read


def _value_reader(slot: _Slot, flexible: bool, shape: _Shapes) -> Callable[[memoryview, int], tuple[Any, int]]:
    if slot.entity is not None:
        item = _compile_reader(slot.entity, shape)
        if slot.nullable and not slot.array:
            item = _nullable_entity_reader(item)
    elif slot.kind == "string":
        item = _string_reader(flexible)
    elif slot.kind in ("bytes", "records"):
        item = _bytes_reader(flexible, copy=slot.kind == "bytes")
    elif slot.kind == "uuid":
        item = _read_uuid
    else:
        item = _fixed_reader(_FIXED[slot.kind])
    return _array_reader(item, flexible) if slot.array else item


class _Shapes:
    """Makes the class of each decoded entity, with the defaults of fields that other versions have."""

    def __init__(self, api_key: int, direction: str) -> None:
        self._api_key = api_key
        self._direction = direction

    def class_of(self, entity: type) -> type[Message]:
        api_key, direction, name = self._api_key, self._direction, entity.__name__

        def absent(self: Message, field: str) -> Any:
            try:
                default = _defaults_of_all_versions(api_key, direction)[name][field]
            except KeyError:
                raise AttributeError(f"no version of {name} has a field {field!r}") from None
            setattr(type(self), field, default)
            return default

        return type(name, (Message,), {"__getattr__": absent})


def _compile_reader(entity: type, shapes: _Shapes) -> Callable[[memoryview, int], tuple[Message, int]]:
    """Generates straight-line code: neighbouring numbers share one unpack, everything else is one call."""
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    slots = _slots(entity)
    scope: dict[str, Any] = {"new": shapes.class_of(entity), "required": _required, "uvarint": _read_uvarint}
    scope["Malformed"] = Malformed
    lines = ["def read(buffer, at):", "    message = new()"]
    run: list[_Slot] = []

    def end_run() -> None:
        if run:
            packed = struct.Struct(">" + "".join(_FIXED[slot.kind] for slot in run))
            label = f"unpack_{run[0].name}"
            scope[label] = packed.unpack_from
            targets = ", ".join(f"message.{slot.name}" for slot in run)
            lines.append(f"    {targets}{',' if len(run) == 1 else ''} = {label}(buffer, at)")
            lines.append(f"    at += {packed.size}")
            run.clear()

    for slot in slots:
        if slot.tag is not None:
            continue
        if slot.kind in _FIXED and not slot.array:
            run.append(slot)
            continue
        end_run()
        scope[f"read_{slot.name}"] = _value_reader(slot, flexible, shapes)
        lines.append(f"    message.{slot.name}, at = read_{slot.name}(buffer, at)")
        if not slot.nullable and slot.kind != "uuid":
            lines.append(f"    if message.{slot.name} is None: required(None, {slot.name!r})")
    end_run()
    if flexible:
        tagged = {slot.tag: slot for slot in slots if slot.tag is not None}
        for slot in tagged.values():
            scope[f"read_{slot.name}"] = _value_reader(slot, flexible, shapes)
            scope[f"default_{slot.name}"] = slot.default
            default = "[]" if slot.default == [] else f"default_{slot.name}"
            lines.append(f"    message.{slot.name} = {default}")
        lines += ["    count, at = uvarint(buffer, at)", "    for _ in range(count):"]
        lines += ["        tag, at = uvarint(buffer, at)", "        size, at = uvarint(buffer, at)"]
        lines += ["        if at + size > len(buffer): raise Malformed('a tagged field longer than its message')"]
        for tag, slot in tagged.items():
            lines.append(f"        if tag == {tag}: message.{slot.name} = read_{slot.name}(buffer, at)[0]")
        lines.append("        at += size")
    lines.append("    return message, at")
    exec("\n".join(lines), scope)  # compiled from kio's field lists alone, nothing from the wire
    return scope["read"]  # type: ignore[no-any-return]


# --- writing --------------------------------------------------------------------------------------------------------


class _Out:
    """Bytes being written, and large buffers to be spliced in between without a copy."""

    __slots__ = ("data", "splices")

    def __init__(self) -> None:
        self.data = bytearray()
        self.splices: list[tuple[int, Buffer]] = []

    def chunks(self) -> list[Buffer]:
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


def _write_uvarint(data: bytearray, value: int) -> None:
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)


def _write_length(data: bytearray, size: int, flexible: bool, width: str) -> None:
    if flexible:
        _write_uvarint(data, size + 1)
    else:
        data += struct.pack(width, size)


def _string_writer(flexible: bool) -> Callable[[_Out, Any], None]:
    def write(out: _Out, value: str | None) -> None:
        if value is None:
            _write_length(out.data, -1, flexible, ">h")
            return
        raw = value.encode()
        _write_length(out.data, len(raw), flexible, ">h")
        out.data += raw

    return write


def _bytes_writer(flexible: bool) -> Callable[[_Out, Any], None]:
    def write(out: _Out, value: Buffer | list[Buffer] | None) -> None:
        if value is None:
            _write_length(out.data, -1, flexible, ">i")
            return
        parts = value if isinstance(value, list) else [value]
        _write_length(out.data, sum(len(part) for part in parts), flexible, ">i")
        for part in parts:
            if len(part) <= _MAX_SPLICE_FREE_BYTES:
                out.data += part
            else:
                out.splices.append((len(out.data), part))

    return write


def _write_uuid(out: _Out, value: uuid.UUID | None) -> None:
    out.data += bytes(16) if value is None else value.bytes


def _array_writer(item: Callable[[_Out, Any], None], flexible: bool) -> Callable[[_Out, Any], None]:
    def write(out: _Out, values: Any) -> None:
        if values is None:
            _write_length(out.data, -1, flexible, ">i")
            return
        _write_length(out.data, len(values), flexible, ">i")
        for value in values:
            item(out, value)

    return write


def _fixed_writer(code: str) -> Callable[[_Out, Any], None]:
    pack = struct.Struct(">" + code).pack

    def write(out: _Out, value: Any) -> None:
        out.data += pack(value)

    return write


def _nullable_entity_writer(item: Callable[[_Out, Any], None]) -> Callable[[_Out, Any], None]:
    def write(out: _Out, value: Any) -> None:
        if value is None:
            out.data += b"\xff"
        else:
            out.data += b"\x01"
            item(out, value)

    return write


def _value_writer(slot: _Slot, flexible: bool) -> Callable[[_Out, Any], None]:
    if slot.entity is not None:
        item = _compile_writer(slot.entity)
        if slot.nullable and not slot.array:
            item = _nullable_entity_writer(item)
    elif slot.kind == "string":
        item = _string_writer(flexible)
    elif slot.kind in ("bytes", "records"):
        item = _bytes_writer(flexible)
    elif slot.kind == "uuid":
        item = _write_uuid
    else:
        item = _fixed_writer(_FIXED[slot.kind])
    return _array_writer(item, flexible) if slot.array else item


def _compile_writer(entity: type) -> Callable[[_Out, Any], None]:
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    slots = _slots(entity)
    scope: dict[str, Any] = {"uvarint": _write_uvarint, "Out": _Out}
    lines = ["def write(out, message):", "    get = message.__dict__.get"]
    run: list[_Slot] = []

    def value_of(slot: _Slot) -> str:
        if slot.default == []:
            return f"get({slot.name!r}, ())"
        scope[f"default_{slot.name}"] = slot.default
        return f"get({slot.name!r}, default_{slot.name})"

    def end_run() -> None:
        if run:
            label = f"pack_{run[0].name}"
            scope[label] = struct.Struct(">" + "".join(_FIXED[slot.kind] for slot in run)).pack
            lines.append(f"    out.data += {label}({', '.join(value_of(slot) for slot in run)})")
            run.clear()

    for slot in slots:
        if slot.tag is not None:
            continue
        if slot.kind in _FIXED and not slot.array:
            run.append(slot)
            continue
        end_run()
        scope[f"write_{slot.name}"] = _value_writer(slot, flexible)
        lines.append(f"    write_{slot.name}(out, {value_of(slot)})")
    end_run()
    if flexible:
        tagged = sorted((slot for slot in slots if slot.tag is not None), key=lambda slot: slot.tag or 0)
        if not tagged:
            lines.append("    out.data.append(0)")
        else:
            lines.append("    present = []")
            for slot in tagged:
                # Nullability of a tagged struct is its presence: the value itself has no marker byte.
                plain = _Slot(slot.name, slot.kind, slot.entity, slot.array, False, slot.tag, slot.default)
                scope[f"write_{slot.name}"] = _value_writer(plain, flexible)
                absent = "() and value != []" if slot.default == [] else f"default_{slot.name}"
                lines.append(f"    value = {value_of(slot)}")
                lines.append(f"    if value != {absent}:")
                lines.append(f"        part = Out(); write_{slot.name}(part, value)")
                lines.append(f"        present.append(({slot.tag}, part.data))")
            lines.append("    uvarint(out.data, len(present))")
            lines.append("    for tag, part in present:")
            lines.append("        uvarint(out.data, tag); uvarint(out.data, len(part)); out.data += part")
    exec("\n".join(lines), scope)  # compiled from kio's field lists alone, nothing from the wire
    return scope["write"]  # type: ignore[no-any-return]


# --- the doors of this module ---------------------------------------------------------------------------------------


@cache
def _reader(api_key: int, version: int, direction: str) -> Callable[[memoryview, int], tuple[Message, int]]:
    return _compile_reader(_entity(api_key, version, direction), _Shapes(api_key, direction))


@cache
def _writer(api_key: int, version: int, direction: str) -> Callable[[_Out, Any], None]:
    return _compile_writer(_entity(api_key, version, direction))


def knows(api_key: int, version: int) -> bool:
    """Whether this API has a schema of this version."""
    return api_key in api_key_map and version in schema_name_map[api_key_map[api_key]]


@cache
def header_version(api_key: int, version: int, direction: str) -> int:
    """The version of the header in front of this request or response."""
    return int(_entity(api_key, version, direction).__header_schema__.__version__)  # type: ignore[attr-defined]


def _decode(api_key: int, version: int, direction: str, buffer: memoryview, at: int) -> Message:
    try:
        return _reader(api_key, version, direction)(buffer, at)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"{api_key_map[api_key]} v{version}: the {direction} ends early or is garbled") from error


def decode_request(api_key: int, version: int, buffer: memoryview, at: int = 0) -> Message:
    """The body of a request that starts at `at`. Raises Malformed, and nothing else, on bad bytes."""
    return _decode(api_key, version, "request", buffer, at)


def decode_response(api_key: int, version: int, buffer: memoryview, at: int = 0) -> Message:
    return _decode(api_key, version, "response", buffer, at)


def encode_request(api_key: int, version: int, message: Message) -> bytes:
    out = _Out()
    _writer(api_key, version, "request")(out, message)
    return b"".join(out.chunks())


def encode_response(api_key: int, version: int, message: Message) -> list[Buffer]:
    """The body of a response as buffers to be sent one after the other."""
    out = _Out()
    _writer(api_key, version, "response")(out, message)
    return out.chunks()


def check_fields(api_key: int, direction: str, message: Message) -> None:
    """Raises AttributeError when a message has a field that no version knows; used by tests to catch typing errors."""
    known = _defaults_of_all_versions(api_key, direction)
    anywhere = {field for entity in known.values() for field in entity}

    def visit(part: Message) -> None:
        for name, value in vars(part).items():
            if name not in anywhere:
                raise AttributeError(f"no version of {api_key_map[api_key]}'s {direction} has a field {name!r}")
            for item in value if isinstance(value, list | tuple) else [value]:
                if isinstance(item, Message):
                    visit(item)

    visit(message)
