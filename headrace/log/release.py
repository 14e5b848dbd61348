"""Release: the bytes with which records whose time has come enter the log, [note][batch].

Pure. The batch has the records in the order of (due time, id), of no producer, with the present time; their delay
headers are replaced by `headrace.scheduled.id` and `headrace.scheduled.for`. The note says which ids they were, and of
those with a cron expression when they are due next: what was missed meanwhile does not come again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from headrace.log.delay_orders import CRON, NAMES, ZONE
from headrace.log.schedule import Due
from headrace.model import delays
from headrace.model.cron import DEFAULT_ZONE, next_due_ms
from headrace.model.topic_config import TopicConfig
from headrace.wire import records as wire_records
from headrace.wire.batches import LOG_APPEND_TIME, Buffer, read_header
from headrace.wire.notes import Note, NoteKind, encode_note
from headrace.wire.record import Headers, Record

MOST_BYTES = 512 << 10
"""Of records that are released with one write; one that is larger is released alone."""
ID, FOR = delays.SCHEDULED_ID_HEADER, delays.SCHEDULED_FOR_HEADER
_GONE = frozenset((*(name.decode() for name in NAMES), ID, FOR))
_LARGEST_DELTA = 0x7FFFFFFF
_CRON, _ZONE = CRON.decode(), ZONE.decode()


def release(
    dues: Sequence[Due], found: Sequence[Buffer], config: TopicConfig, now_ms: int, due_now_ms: int
) -> tuple[memoryview, int]:
    """What is to be written for these records, whose bytes were `found`, and how many of them are in it. `due_now_ms`
    is the time by which they are due; `now_ms` the one that they get."""
    most = min(MOST_BYTES, config.max_message_bytes // 2)
    bodies: list[Buffer] = []
    size = 0
    for body_bytes in found:
        if bodies and size + len(body_bytes) > most:
            break
        bodies.append(body_bytes)
        size += len(body_bytes)
    opened = wire_records.decode_section(b"".join(bodies), len(bodies), _LARGEST_DELTA, now_ms)
    records: list[Record] = []
    next_dues = array("q")
    for place, (record, due) in enumerate(zip(opened, dues, strict=False)):
        records.append(record._replace(offset=place, timestamp=now_ms, headers=_renamed(record.headers, due)))
        next_dues.append(_next_due(record.headers, max(due_now_ms, due.due_ms)))
    attributes = LOG_APPEND_TIME if config.log_append_time else 0
    batch = wire_records.encode_batch(records, codec=config.codec or 0, attributes=attributes)
    note = Note(
        NoteKind.RELEASE,
        mates=1,
        mate_crc=read_header(batch).crc & 0xFFFFFFFF,
        changed=array("q", [due.id for due in dues[: len(records)]]),
        next_dues=next_dues,
    )
    return memoryview(encode_note(note) + batch), len(records)


def _renamed(headers: Headers, due: Due) -> Headers:
    kept = [header for header in headers if header[0] not in _GONE]
    return (*kept, (ID, b"%d" % due.id), (FOR, b"%d" % due.due_ms))


def _next_due(headers: Headers, after_ms: int) -> int:
    """When a record is due again; -1 if it is not."""
    if len(headers) == 1 and headers[0][0] != _CRON:
        return -1
    values = dict(headers)
    expression = values.get(_CRON)
    if expression is None:
        return -1
    try:
        return next_due_ms(expression.decode(), (values.get(_ZONE) or DEFAULT_ZONE.encode()).decode(), after_ms)
    except ValueError:
        return -1
