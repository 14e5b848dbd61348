"""The blocking producer.

A thin layer over librdkafka, which queues, batches, retries and keeps order. This file adds delivery guarantees,
profiles, codecs, custom partitioning, transactions as a `with` block, and one-line errors. AsyncProducer wraps this
class. Invariant: every failed delivery is reported: to the message's callback, or by `flush`, `close` or the end of the
transaction, which raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.sdk.codecs import Codec, CodecName, codec_of
from headrace.sdk.delayed_topics import DelayedTopics
from headrace.sdk.delivery import Delivery
from headrace.sdk.errors import (
    BadMessage,
    Broken,
    Fenced,
    NotDelivered,
    SdkError,
    WrongMoment,
    cause_of,
    explained,
)
from headrace.sdk.message import Header, Message
from headrace.sdk.partitioner import PartitionChoice, Partitioner
from headrace.sdk.profiles import Profile
from headrace.sdk.received import message_of
from headrace.sdk.record import ANY_PARTITION, Key, Outgoing, Record, outgoing
from headrace.sdk.settings import producer_settings
from headrace.sdk.timing import timing_headers
from headrace.sdk.topic_facts import partition_count
from headrace.sdk.transaction import Transactions
from headrace.world.clock import Clock, SystemClock

if TYPE_CHECKING:
    from headrace.sdk.consumer import Consumer

P = ParamSpec("P")
R = TypeVar("R")
OnDelivery = Callable[[SdkError | None, Message], None]

ANSWER_TIMEOUT_S = 10.0
QUEUE_TURNS = 1200  # times WAIT_S: how long `send` waits while the queue is full and does not drain
WAIT_S = 0.1
REPORTS_EVERY = 64  # messages between two polls for delivery reports


class Producer:
    """Writes messages.

    with Producer("127.0.0.1:9092") as producer:
        producer.send("orders", "a value", key="customer-7")

    `delivery` is the delivery guarantee:

    - "at-most-once": sent once, no answer awaited (acks=0, no retries). Fast; messages may be lost, there are no
      duplicates.
    - "at-least-once" (default): acks=all, retries, idempotent. An acknowledged message is stored; retries of the client
      cause neither duplicates nor reordering. A program that crashes before the acknowledgement and sends again may
      cause a duplicate.
    - "exactly-once": transactions. Needs `transactional_id`, unique to this producer and kept over restarts; every
      message is sent inside `with producer.transaction():`, and read_committed consumers see all of a transaction or
      nothing.

    `profile` is what it is tuned for: "throughput", "latency" or "balanced" (see headrace.sdk.profiles). `partitioner`
    is a function (key, partition count) -> partition; without it partitions are chosen by the key's hash as in the Java
    client, at random without a key. `codec` turns values into bytes: "bytes", "text", "json" or an object with encode
    and decode. Any setting of librdkafka can be given by name: `linger_ms=20`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        delivery: Delivery = "at-least-once",
        profile: Profile = "balanced",
        partitioner: Partitioner | None = None,
        codec: CodecName | Codec = "bytes",
        transactional_id: str | None = None,
        clock: Clock | None = None,
        **overrides: Any,
    ) -> None:
        self._bootstrap = bootstrap
        self._settings = producer_settings(bootstrap, delivery, profile, transactional_id, overrides)
        self._codec = codec_of(codec)
        self._clock = clock or SystemClock()
        self._choice = PartitionChoice(partitioner, self._count_partitions, self._clock) if partitioner else None
        self._delayed_topics = DelayedTopics(self._settings, self._clock)
        self._transactional_id = transactional_id
        self._transactions: Transactions | None = None
        self._client: confluent_kafka.Producer | None = None
        self._closed = False
        self._sent = 0
        self._failures: list[SdkError] = []

    # --- open and close ---

    def open(self) -> confluent_kafka.Producer:
        """Start the client, unless it is running. Every other call does this by itself."""
        if self._closed:
            raise WrongMoment("this producer is closed: open a new one")
        if self._client is None:
            try:
                self._client = confluent_kafka.Producer({**self._settings, "on_delivery": self._reported})
            except KafkaException as error:
                raise explained(cause_of(error), f"starting a producer for {self._bootstrap}") from error
        return self._client

    def close(self, timeout_s: float = 30.0) -> None:
        """Deliver the queued messages, then stop. Raises NotDelivered if some could not be delivered."""
        client, self._client, self._closed = self._client, None, True
        if client is None:
            return
        # Messages of a transaction are delivered before its commit; any that are left belong to an aborted one.
        left = 0
        try:
            left = 0 if self._transactional_id else self._serving(client.flush, timeout_s)
        finally:
            is_over = self._transactions is not None and self._transactions.is_over
            # A fenced client is not closed: librdkafka's close would try to abort a transaction that it no longer owns.
            last_calls = (client.purge, lambda: client.flush(0), *(() if is_over else (client.close,)))
            for last_call in last_calls:
                with suppress(SdkError):  # a fatal error that was raised before, or is being raised now
                    self._serving(last_call)
        if not self._transactional_id:
            self._raise_failures(left)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SdkError:
            if error is None:  # an error raised inside the block is the more useful one
                raise

    # --- sending ---

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Key | None = None,
        partition: int | None = None,
        headers: Iterable[Header] = (),
        tags: Iterable[str] = (),
        id: str | None = None,
        timestamp_ms: int | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | int | None = None,
        cron: str | None = None,
        cron_tz: str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Queue one message; it is sent in the background. Waits while the queue is full.

        `value` None is a tombstone. `tags` and `id` become the headers headrace.tag and headrace.id. `delay`,
        `deliver_at` (a datetime with a time zone, or epoch ms) or `cron` (in the time zone `cron_tz`) keep the message
        back until it is due, on a topic with headrace.delay.enable; the receipt's offset is then its id. `on_delivery`
        is called with (error or None, receipt) during a later send, flush or close; without it a failure is raised by
        flush.
        """
        if delay is not None or deliver_at is not None or cron is not None or cron_tz is not None:
            headers = [*headers, *self._timing(topic, delay, deliver_at, cron, cron_tz)]
        callback = None if on_delivery is None else self._reporter(on_delivery)
        self._put(outgoing(self._codec, topic, value, key, partition, headers, tags, id, timestamp_ms, callback))

    def send_record(self, record: Record, *, on_delivery: OnDelivery | None = None) -> None:
        """Like `send`, with the message as one object."""
        self._put(self._message(record, on_delivery))

    def offer_record(self, record: Record, on_delivery: OnDelivery | None = None) -> bool:
        """Queue one message without waiting; False if the queue is full."""
        return self._offer(self._message(record, on_delivery))

    def knows(self, topic: str) -> bool:
        """Whether `offer_record` can choose a partition of this topic without asking the broker first."""
        return self._choice is None or self._choice.knows(topic)

    def knows_delays(self, topic: str) -> bool:
        """Whether `offer_record` can take a delayed message to this topic without asking the broker first."""
        return self._delayed_topics.knows(topic)

    def learn(self, topic: str) -> None:
        """Ask the broker for what `offer_record` needs to know about the topic."""
        if self._choice is not None:
            self._choice.learn(topic)

    def learn_delays(self, topic: str) -> None:
        """Ask the broker whether the topic keeps delayed messages back; BadMessage if it does not."""
        self._delayed_topics.require(topic)

    def send_and_wait(self, topic: str, value: Any, *, timeout_s: float = 120.0, **message: Any) -> Message:
        """Send one message and wait for the acknowledgement. Returns the receipt: its partition and offset."""
        outcome: list[tuple[SdkError | None, Message]] = []
        self.send(topic, value, on_delivery=lambda error, receipt: outcome.append((error, receipt)), **message)
        for _ in range(int(timeout_s / WAIT_S) + 1):
            if outcome:
                break
            self.poll(WAIT_S)
        else:
            raise NotDelivered(
                f"no acknowledgement of a message to {topic} within {timeout_s:g} s: it may still be delivered"
            )
        error, receipt = outcome[0]
        if error is not None:
            raise error
        return receipt

    def flush(self, timeout_s: float = 120.0) -> None:
        """Wait until every message is delivered. Raises NotDelivered if some were not."""
        self._raise_failures(self._serving(self.open().flush, timeout_s))

    def poll(self, timeout_s: float = 0.0) -> int:
        """Run pending delivery callbacks, and return how many. Needed only by a program that sends rarely."""
        return self._serving(self.open().poll, timeout_s)

    # --- transactions ---

    @contextmanager
    def transaction(self, consumer: Consumer | None = None) -> Iterator[None]:
        """Everything sent in the block is committed at its end, or, if the block raises, aborted.

        With a `consumer`, the offsets of the messages it handed out are committed in the same transaction, so the input
        counts as read if and only if the output is committed; after an abort the consumer returns the same messages
        again. Raises TransactionAborted if the transaction was aborted (it may be retried) and Fenced if another
        producer has taken over this transactional id.
        """
        self.begin_transaction()
        try:
            yield
            self.commit_transaction(consumer)
        except BaseException as error:
            self.abort_transaction(error, consumer)
            raise

    def start_transactions(self) -> None:
        """Fence earlier producers with this transactional id, and abort the transaction that they left open."""
        self._txn().start()

    def begin_transaction(self) -> None:
        self._txn().begin()

    def commit_transaction(self, consumer: Consumer | None = None) -> None:
        if consumer is not None:
            self._txn().add_offsets(*consumer.offsets_for_transaction())
        self._txn().commit()
        if consumer is not None:
            consumer.transaction_committed()

    def abort_transaction(self, because: BaseException, consumer: Consumer | None = None) -> None:
        """Abort the transaction. After an error that makes this producer unusable, the broker does so by itself."""
        self._failures.clear()  # of messages that are aborted anyway
        self._txn().abort_after(because)
        if consumer is not None and not isinstance(because, Fenced | Broken):
            consumer.transaction_aborted()

    def _txn(self) -> Transactions:
        if self._transactional_id is None:
            raise WrongMoment('transactions need Producer(delivery="exactly-once", transactional_id=...)')
        if self._transactions is None:
            self._transactions = Transactions(self.open(), self._transactional_id)
        return self._transactions

    # --- inside ---

    def _message(self, record: Record, on_delivery: OnDelivery | None) -> Outgoing:
        callback = None if on_delivery is None else self._reporter(on_delivery)
        value, key, topic, partition, headers, tags, message_id, timestamp_ms = record[:8]
        if topic is not None and record.is_delayed:
            timing = self._timing(topic, record.delay, record.deliver_at, record.cron, record.cron_tz)
            headers = [*headers, *timing]
        return outgoing(self._codec, topic, value, key, partition, headers, tags, message_id, timestamp_ms, callback)

    def _timing(
        self,
        topic: str,
        delay: timedelta | None,
        deliver_at: datetime | int | None,
        cron: str | None,
        cron_tz: str | None,
    ) -> list[Header]:
        """The headers of a delayed message, once it is known that its topic heeds them."""
        headers = timing_headers(delay, deliver_at, cron, cron_tz, self._clock.now_ms())
        self._delayed_topics.require(topic)
        return headers

    def _put(self, message: Outgoing) -> None:
        """Queue a message, waiting while the queue is full: it drains, as every message is delivered or times out."""
        for _ in range(QUEUE_TURNS):
            if self._offer(message):
                return
            self.poll(WAIT_S)
        raise NotDelivered(
            f"the queue has been full for {QUEUE_TURNS * WAIT_S:g} s, the message to {message[0]} was not queued: "
            f"does {self._bootstrap} answer?"
        )

    def _offer(self, message: Outgoing) -> bool:
        client = self.open() if self._client is None else self._client
        if self._transactional_id is not None and not self._txn().is_open:
            raise WrongMoment("an exactly-once producer sends inside `with producer.transaction():`")
        if self._choice is not None and message[3] == ANY_PARTITION:
            message = (*message[:3], self._choice.choose(message[0], message[2]), *message[4:])
        try:
            client.produce(*message)
        except BufferError:
            return False
        except KafkaException as error:
            raise explained(cause_of(error), f"sending to {message[0]}") from error
        except (TypeError, ValueError) as error:
            raise BadMessage(f"a message to {message[0]} cannot be sent: {error}") from error
        self._sent += 1
        if self._sent % REPORTS_EVERY == 0 or message[4] is not None:
            self.poll()
        return True

    def _serving(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make a call during which librdkafka runs callbacks.

        confluent-kafka raises a fatal error of the client once, from whichever such call comes next; if more callbacks
        were pending, as the cause of a SystemError.
        """
        try:
            return call(*args, **kwargs)
        except (KafkaException, SystemError) as error:
            source = error if isinstance(error, KafkaException) else error.__cause__
            if not isinstance(source, KafkaException):
                raise
            raise explained(cause_of(source), f"producing to {self._bootstrap}") from error

    def _reported(self, error: KafkaError | None, inner: confluent_kafka.Message) -> None:
        if error is not None:
            self._failures.append(explained(error, f"sending to {inner.topic()}"))

    def _reporter(self, on_delivery: OnDelivery) -> Callable[[KafkaError | None, confluent_kafka.Message], None]:
        def report(error: KafkaError | None, inner: confluent_kafka.Message) -> None:
            failure = explained(error, f"sending to {inner.topic()}") if error is not None else None
            on_delivery(failure, message_of(inner, self._codec))

        return report

    def _raise_failures(self, left: int) -> None:
        failures, self._failures = self._failures, []
        if failures:
            raise NotDelivered(f"{_plural(len(failures))} not delivered; the first: {failures[0]}", failures[0].code)
        if left:
            raise NotDelivered(f"{_plural(left)} still waiting to be delivered: does {self._bootstrap} answer?")

    def _count_partitions(self, topic: str) -> int:
        return partition_count(self.open(), self._bootstrap, topic, ANSWER_TIMEOUT_S)


def _plural(count: int) -> str:
    return f"{count} message is" if count == 1 else f"{count} messages are"
