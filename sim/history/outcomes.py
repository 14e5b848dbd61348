"""Which errors prove that nothing happened: the table behind `fail` and `info`.

An operation that ended in an error is `fail` only if the error proves that it had no effect, and `info` otherwise: a
timeout says nothing about what the broker did. Clients report the error of their last attempt, but an earlier attempt
may have taken effect unnoticed. So for a client that retries internally, only errors that every attempt would get are a
proof. For a client that sends each request once, a rejection is a proof.

Names are those of Kafka's error codes and, with a leading underscore, of librdkafka's own errors. Errors that are in no
table are `info`: a wrong `info` only weakens a check, while a wrong `fail` makes the verdict wrong.
"""

from __future__ import annotations

from sim.history.event import FAIL, INFO


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The same error at every attempt: the request can never be accepted.
HOPELESS = {
    "send": _names("""MESSAGE_TOO_LARGE MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_MSG_SIZE
        INVALID_TOPIC_EXCEPTION TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        INVALID_REQUIRED_ACKS INVALID_RECORD INVALID_TIMESTAMP UNSUPPORTED_COMPRESSION_TYPE
        UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED _QUEUE_FULL _INVALID_ARG _STATE _UNKNOWN_PARTITION _UNKNOWN_TOPIC
        _CONFLICT"""),
    "commit": _names("""OFFSET_METADATA_TOO_LARGE GROUP_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED INVALID_GROUP_ID
        INVALID_COMMIT_OFFSET_SIZE _NO_OFFSET _INVALID_ARG _UNKNOWN_GROUP"""),
    "end": _names("TRANSACTIONAL_ID_AUTHORIZATION_FAILED INVALID_PRODUCER_ID_MAPPING _STATE _INVALID_ARG"),
}
HOPELESS["send_offsets"] = HOPELESS["commit"]

# A rejection of this attempt, before anything was written. "Not the leader" and "not the coordinator" are not in it: a
# broker that steps down also sends them for records that it has written and cannot commit any more.
REFUSED = {
    "send": _names("""LEADER_NOT_AVAILABLE FENCED_LEADER_EPOCH
        UNKNOWN_LEADER_EPOCH UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID NOT_ENOUGH_REPLICAS
        CORRUPT_MESSAGE INVALID_MSG OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID INVALID_PRODUCER_EPOCH
        PRODUCER_FENCED INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING CONCURRENT_TRANSACTIONS TRANSACTION_ABORTABLE
        THROTTLING_QUOTA_EXCEEDED"""),
    "commit": _names("""ILLEGAL_GENERATION UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH
        REBALANCE_IN_PROGRESS GROUP_ID_NOT_FOUND UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID
        UNSTABLE_OFFSET_COMMIT INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_TXN_STATE"""),
    "end": _names("""CONCURRENT_TRANSACTIONS INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_TXN_STATE
        TRANSACTION_ABORTABLE"""),
}
REFUSED["send_offsets"] = REFUSED["commit"]

NOTHING: frozenset[str] = frozenset()


def outcome(f: str, err: str, tried_once: bool) -> str:
    """`fail` if this error of the operation `f` proves that it had no effect, else `info`."""
    if err in HOPELESS.get(f, NOTHING) or (tried_once and err in REFUSED.get(f, NOTHING)):
        return FAIL
    return INFO
