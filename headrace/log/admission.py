"""What a client's batch must fulfil before it may enter a log. Called by partition_log.py for every produced batch.

Only the header is looked at, except on compacted topics: there every record needs a key, so the batch is opened.
"""

from __future__ import annotations

from headrace.model.topic_config import TopicConfig
from headrace.wire import records as wire_records
from headrace.wire.batches import CONTROL, LOG_APPEND_TIME, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader
from headrace.wire.errors import ErrorCode, InvalidRecords, KafkaError, Malformed


def check_client_batch(
    records: memoryview, at: int, header: BatchHeader, config: TopicConfig, now_ms: int, *, transactional: bool = False
) -> None:
    """Raises KafkaError with the code that a Kafka broker would give. Only in a `transactional` request may there be
    transactional batches: without a coordinator that knows of them they would stay open for ever."""
    if header.size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"a record batch of {header.size} bytes, but max.message.bytes is {config.max_message_bytes}",
        )
    attributes = header.attributes
    if attributes & CONTROL:
        raise KafkaError(ErrorCode.invalid_record, "a producer may not send a control batch")
    if attributes & TRANSACTIONAL and (not transactional or header.producer_id < 0):
        what = "without a producer id" if transactional else "in a request without a transactional id"
        raise KafkaError(ErrorCode.invalid_record, f"a transactional batch {what}")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise KafkaError(ErrorCode.invalid_record, f"producer {header.producer_id} sent no epoch or no sequence")
    if not config.log_append_time:
        _check_time(header, config, now_ms)
    if config.compacted:
        _check_keys(records, at)


def _check_time(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    if header.attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.invalid_timestamp, "only the broker may mark a batch as LogAppendTime")
    if header.max_timestamp == NO_TIMESTAMP:
        return
    if header.max_timestamp - now_ms > config.timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"a record is dated {header.max_timestamp}, more than message.timestamp.after.max.ms = "
            f"{config.timestamp_after_max_ms} after the broker's {now_ms}",
        )
    if now_ms - header.base_timestamp > config.timestamp_before_max_ms:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"a record is dated {header.base_timestamp}, more than message.timestamp.before.max.ms = "
            f"{config.timestamp_before_max_ms} before the broker's {now_ms}",
        )


def _check_keys(records: memoryview, at: int) -> None:
    try:
        keyless = wire_records.without_key(records, at)
    except Malformed as error:
        raise KafkaError(ErrorCode.corrupt_message, f"a record batch cannot be opened: {error}") from error
    if keyless:
        raise InvalidRecords(keyless, "a compacted topic takes no record without a key")
