"""Topics that say how their batches are compressed (`compression.type`): others are compressed again before they are
written. Called by appending.py. Most topics keep what the producer sent, and never come here."""

from __future__ import annotations

from headrace.wire import records as wire_records
from headrace.wire.batches import CODEC_MASK, BatchHeader, walk
from headrace.wire.errors import ErrorCode, KafkaError, Malformed

Found = list[tuple[int, BatchHeader]]


def recompressed(
    records: memoryview, found: Found, codec: int, max_bytes: int, level: int | None = None
) -> tuple[memoryview, Found]:
    """The same batches in this codec. KafkaError if one cannot be opened, or is too large then; nothing has changed."""
    if all(header.codec == codec or not header.record_count for _, header in found):
        return records, found
    batches = bytearray()
    for at, header in found:
        if header.codec == codec or not header.record_count:
            batches += records[at : at + header.size]
            continue
        try:
            _, section = wire_records.open_batch(records, at)
        except Malformed as error:
            raise KafkaError(ErrorCode.corrupt_message, f"a record batch cannot be opened: {error}") from error
        attributes = header.attributes & ~CODEC_MASK | codec
        batch = wire_records.seal_batch(header._replace(attributes=attributes), section, level)
        if len(batch) > max_bytes:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"a record batch of {len(batch)} bytes in the topic's compression.type, but max.message.bytes is "
                f"{max_bytes}",
            )
        batches += batch
    view = memoryview(batches)
    return view, list(walk(view))
