"""Every error that the SDK raises: one line that says what happened, to what, and what to do next.

Raised by every file of the SDK. librdkafka's own exceptions never leave it: `explained` turns them into a class that a
program can catch and a line that a person can act on. The original error is kept as `__cause__`, its code as `code`.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headrace.model.failure import Failure


class SdkError(Failure):
    """Anything that the SDK could not do. `code` is Kafka's error code, or librdkafka's, if there is one."""

    def __init__(self, line: str, code: int | None = None) -> None:
        super().__init__(line)
        self.code = code


class BadSetting(SdkError):
    """A setting is unknown, invalid, or breaks the chosen delivery guarantee."""


class BadMessage(SdkError):
    """A message cannot be encoded, sent or decoded."""


class NotPending(SdkError):
    """No delayed message with this id or key is pending: it was delivered or cancelled, or never existed."""


class WrongMoment(SdkError):
    """A call that is not allowed in this state: outside a transaction, or after close."""


class Unreachable(SdkError):
    """No broker answered in time."""


class TopicMissing(SdkError):
    """The topic, or a partition of it, does not exist."""


class NotPermitted(SdkError):
    """Authentication or authorization failed."""


class NotDelivered(SdkError):
    """Messages were sent but not acknowledged: they may or may not be stored."""


class Fenced(SdkError):
    """A newer producer or group member has replaced this one, which must stop."""


class TransactionAborted(SdkError):
    """The transaction was aborted: read_committed consumers see nothing of it. It may be retried."""


class Broken(SdkError):
    """This client is unusable after this error; open a new one."""


_TAKEN_OVER = (
    "a newer producer with the same transactional id has taken over, or the transaction stayed open for longer than "
    "transaction.timeout.ms; run one producer per transactional id and close this one"
)
_START_BROKER = "is the broker running, and is the address right?"
_CREATE_TOPIC = "create it with `headrace topic create NAME`"
_ASK_ADMIN = "check the credentials, or ask an administrator for the permission"

_MEANING: dict[int, tuple[type[SdkError], str]] = {
    KafkaError._FENCED: (Fenced, _TAKEN_OVER),
    KafkaError.PRODUCER_FENCED: (Fenced, _TAKEN_OVER),
    KafkaError.INVALID_PRODUCER_EPOCH: (Fenced, _TAKEN_OVER),
    KafkaError.FENCED_INSTANCE_ID: (
        Fenced,
        "another member with the same group.instance.id has joined; give each member its own",
    ),
    KafkaError.INVALID_PRODUCER_ID_MAPPING: (
        Broken,
        "the broker no longer knows this transactional id, because it was idle for too long; open a new producer",
    ),
    KafkaError.INVALID_TXN_STATE: (Broken, "the transaction is no longer open on the broker; open a new producer"),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        BadSetting,
        "transaction.timeout.ms is larger than the broker's transaction.max.timeout.ms",
    ),
    KafkaError._TRANSPORT: (Unreachable, _START_BROKER),
    KafkaError._ALL_BROKERS_DOWN: (Unreachable, _START_BROKER),
    KafkaError._RESOLVE: (Unreachable, "check the host name"),
    KafkaError._TIMED_OUT: (Unreachable, _START_BROKER),
    KafkaError._MSG_TIMED_OUT: (NotDelivered, "the broker did not take it within message.timeout.ms; " + _START_BROKER),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (TopicMissing, _CREATE_TOPIC),
    KafkaError._UNKNOWN_TOPIC: (TopicMissing, _CREATE_TOPIC),
    KafkaError._UNKNOWN_PARTITION: (TopicMissing, "`headrace topic describe NAME` shows its partitions"),
    KafkaError.TOPIC_EXCEPTION: (BadMessage, "a topic name has letters, digits, dots, dashes and underscores only"),
    KafkaError.MSG_SIZE_TOO_LARGE: (
        BadMessage,
        "send less, or raise message.max.bytes here and max.message.bytes on the topic",
    ),
    KafkaError.INVALID_RECORD: (BadMessage, "the topic's settings or the message's own headers forbid it"),
    KafkaError._INVALID_DIFFERENT_RECORD: (
        NotDelivered,
        "the broker refused another message of the same batch, and with it this one; send it again",
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (NotPermitted, _ASK_ADMIN),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (NotPermitted, _ASK_ADMIN),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (NotPermitted, _ASK_ADMIN),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (NotPermitted, _ASK_ADMIN),
    KafkaError.SASL_AUTHENTICATION_FAILED: (NotPermitted, _ASK_ADMIN),
    KafkaError._AUTHENTICATION: (NotPermitted, _ASK_ADMIN),
    KafkaError._AUTO_OFFSET_RESET: (
        SdkError,
        "there is no committed offset to start from; seek, or set auto_offset_reset to earliest or latest",
    ),
    KafkaError._INVALID_ARG: (BadSetting, "check the value"),
    KafkaError._UNSUPPORTED_FEATURE: (SdkError, "the broker is too old for this, or does not offer it"),
    KafkaError.UNSUPPORTED_VERSION: (SdkError, "the broker is too old for this, or does not offer it"),
}


def explained(error: KafkaError, doing: str) -> SdkError:
    """The SDK's error for an error of librdkafka. `doing` begins the line: what was tried, with names."""
    kind, advice = _MEANING.get(error.code(), (SdkError, ""))
    if error.fatal() and kind is SdkError:
        kind, advice = Broken, "open a new client"
    elif error.txn_requires_abort() and kind is SdkError:
        kind, advice = TransactionAborted, "retry the transaction"
    words = "" if kind is Fenced else words_of(error)  # librdkafka's words say less than the advice
    return kind(f"{doing}: {'; '.join(filter(None, (words, advice)))}", error.code())


def cause_of(error: KafkaException) -> KafkaError:
    """The KafkaError inside an exception of librdkafka."""
    cause: Any = error.args[0] if error.args else None
    return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(cause))


def words_of(error: KafkaError) -> str:
    """librdkafka's text of an error, in one line and without the prefix that says where it was detected."""
    if error.code() == KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT:
        return "its messages are not in the order of times, so they cannot be looked up by time"
    text = " ".join(error.str().split())
    return text.replace("Broker: ", "").replace("Local: ", "")
