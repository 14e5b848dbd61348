"""What a rejected write of a journal means for the clients of its coordinator. Used by the runtime."""

from __future__ import annotations

from headrace.wire.errors import ErrorCode

# The error for a client when the journal rejects a write: these codes make it look up its coordinator again.
JOURNAL_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
# Errors of the producer and not of the journal: the producer was fenced.
FENCED = {ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced}
