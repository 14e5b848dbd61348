"""The blocking consumer.

Thin over librdkafka, which fetches ahead, keeps the group membership and commits in the background; this file adds when
an offset may be committed, limits, seeking and errors in one line. What was handed out and acknowledged is kept in
the Ledger. AsyncConsumer drives this same class.

librdkafka lets one call in at a time, so `ack`, which may come from any thread, only writes into the ledger; the thread
that polls carries it on. Invariant: a message is handed out once per assignment, and in at-least-once its offset is
stored only after it is acknowledged; in at-most-once only after its offset is committed is it handed out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from types import TracebackType
from typing import Any, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.sdk.codecs import Codec, CodecName, codec_of
from headrace.sdk.delivery import Delivery
from headrace.sdk.errors import BadSetting, SdkError, TransactionAborted, WrongMoment, cause_of, explained
from headrace.sdk.ledger import Ledger, Partition
from headrace.sdk.message import Message
from headrace.sdk.pace import Pace
from headrace.sdk.profiles import Profile
from headrace.sdk.received import message_of
from headrace.sdk.seeking import Moment, Seeking
from headrace.sdk.settings import consumer_settings
from headrace.sdk.topic_facts import partition_count
from headrace.world.clock import Clock, SystemClock

LOG = logging.getLogger("headrace.sdk")

ANSWER_TIMEOUT_S = 10.0
BATCH = 500
ITERATION_WAIT_S = 0.5
KEEP_ALIVE_S = 20.0  # however long the limits hold messages back, the group hears from this member

# The client mends these by itself; a program can do nothing about them.
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._PARTITION_EOF,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_MOVED_ON = frozenset(  # the group has given the partitions to somebody else
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._STATE,
        KafkaError._NO_OFFSET,
        KafkaError._ASSIGNMENT_LOST,
    }
)


class Consumer:
    """Reads messages of topics, as a member of a group.

    with Consumer("127.0.0.1:9092", "orders", group="billing") as consumer:
        for message in consumer:
            print(message.text)

    `delivery` says how sure it must be:

    - "at-most-once": offsets are committed before messages are handed out. A crash loses what was not finished.
    - "at-least-once" (default): offsets are committed after messages were acknowledged. A crash brings the rest again.
    - "exactly-once": reads committed transactions only and commits nothing itself; the offsets go into a producer's
      transaction, with `exactly_once(...)` or `producer.transaction(consumer)`.

    With `auto_ack` (default) a message counts as acknowledged when the program asks for the next one, by iterating on
    or by polling again; without it the program calls `ack`, from any thread and in any order. `rate_limit` is
    messages a second, `in_flight_limit` messages handed out and not yet acknowledged. `profile`, `codec` and further
    settings are as for Producer.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: str | Sequence[str],
        *,
        group: str,
        delivery: Delivery = "at-least-once",
        profile: Profile = "balanced",
        codec: CodecName | Codec = "bytes",
        auto_ack: bool = True,
        rate_limit: float | None = None,
        in_flight_limit: int | None = None,
        clock: Clock | None = None,
        **overrides: Any,
    ) -> None:
        self._bootstrap = bootstrap
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        if not self._topics:
            raise BadSetting("a consumer needs a topic")
        self._group = group
        self._delivery = delivery
        self._settings = consumer_settings(bootstrap, group, delivery, profile, overrides)
        self._codec = codec_of(codec)
        self._clock = clock or SystemClock()
        self._ledger = Ledger(auto_ack, in_flight_limit, Pace(rate_limit) if rate_limit is not None else None)
        self._client: confluent_kafka.Consumer | None = None
        self._closed = False
        self._news = Event()  # an acknowledgement or the end came
        self._polled_at_s = 0.0
        self._revoked_now: set[Partition] = set()
        self._in_transaction: dict[Partition, int] = {}
        self._spoiled = False  # a partition left while messages of it were in no committed transaction

    # --- life ---

    def open(self) -> confluent_kafka.Consumer:
        """Start the client and subscribe, unless it runs. Every other call does this by itself."""
        if self._closed:
            raise WrongMoment("this consumer is closed: open a new one")
        if self._client is None:
            try:
                client = confluent_kafka.Consumer(self._settings)
            except (KafkaException, ValueError) as error:
                cause = cause_of(error) if isinstance(error, KafkaException) else KafkaError(-186, str(error))
                raise explained(cause, f"starting a consumer for {self._bootstrap}") from error
            try:
                for topic in self._topics:
                    if not topic.startswith("^"):
                        partition_count(client, self._bootstrap, topic, ANSWER_TIMEOUT_S)
                client.subscribe(self._topics, on_revoke=self._revoked, on_lost=self._lost)
            except SdkError:
                client.close()
                raise
            self._client = client
        return self._client

    def close(self) -> None:
        """Leave the group; what was acknowledged is committed. What was only handed out will come again."""
        client, self._client, self._closed = self._client, None, True
        self._news.set()
        if client is not None:
            self._store(client)
            client.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- reading ---

    def __iter__(self) -> Iterator[Message]:
        """Messages without end, until the consumer is closed."""
        while not self._closed:
            if not self.ready():
                self.ask(BATCH, ITERATION_WAIT_S)
            yield from self.take(1)

    def poll(self, max_messages: int = BATCH, timeout_s: float = 1.0) -> list[Message]:
        """The next messages, at most `max_messages`; waits for the first one, up to `timeout_s`. Empty if none came."""
        self.ask(max_messages, timeout_s)
        return self.take(max_messages)

    def ready(self) -> bool:
        """Ask for more without waiting: whether messages are there to `take`."""
        self._ledger.asked_for_more()
        return self._ledger.has_fetched and self._ledger.room(self._clock.monotonic()) > 0

    def ask(self, wanted: int, timeout_s: float) -> None:
        """The waiting half of poll: on return messages are there to `take`, or the time is over."""
        self._ledger.asked_for_more()
        client = self.open()
        until_s = self._clock.monotonic() + timeout_s
        while not self._closed:
            now_s = self._clock.monotonic()
            self._news.clear()
            room = self._ledger.room(now_s)
            if room > 0 and self._ledger.has_fetched:
                return
            left_s = max(0.0, until_s - now_s)
            if room > 0:
                self._fetch(client, min(room, wanted), left_s)
            elif now_s - self._polled_at_s > KEEP_ALIVE_S:
                self._fetch(client, 1, 0)
            elif left_s:
                pause_s = self._ledger.wait_s(now_s) or left_s
                self._news.wait(min(pause_s, left_s, KEEP_ALIVE_S))
            if not left_s:
                return

    def take(self, wanted: int) -> list[Message]:
        """The quick half of poll: hand out what is there."""
        return self._ledger.take(wanted, self._clock.monotonic())

    def ack(self, *messages: Message) -> None:
        """The program is done with these messages. From any thread, in any order."""
        self._ledger.acknowledge(messages)
        self._news.set()

    @property
    def in_flight(self) -> int:
        """Messages handed out and not yet acknowledged."""
        return self._ledger.in_flight

    def commit(self) -> None:
        """Commit now, and wait for it, what was acknowledged; with auto_ack, everything that was handed out."""
        if self._delivery == "exactly-once":
            raise WrongMoment("an exactly-once consumer commits in a transaction: use producer.transaction(consumer)")
        self._ledger.asked_for_more()
        self._commit(self.open(), self._ledger.progress())

    # --- where to read ---

    def assignment(self) -> list[Partition]:
        """The partitions this member reads now, as (topic, partition)."""
        return [(each.topic, each.partition) for each in self.open().assignment()]

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read one partition from this offset on."""
        self._seeking().to_offsets({(topic, partition): offset})

    def seek_to_start(self) -> None:
        """Read all assigned partitions from their first message on. Waits for the assignment, if there is none yet."""
        self._seeking().to_start()

    def seek_to_end(self) -> None:
        """Read all assigned partitions from what is written after now."""
        self._seeking().to_end()

    def seek_to_time(self, moment: Moment) -> None:
        """Read all assigned partitions from the first message of that time or later: a datetime, or epoch ms."""
        self._seeking().to_time(moment)

    def pause(self, *places: Partition) -> None:
        """Hand out nothing of these partitions, or of all, until `resume`."""
        chosen = list(places) or self.assignment()
        self.open().pause([TopicPartition(*place) for place in chosen])
        self._ledger.hold(chosen)

    def resume(self, *places: Partition) -> None:
        """Go on with these partitions, or with all."""
        chosen = list(places) or self.assignment()
        self._ledger.release(chosen)
        self.open().resume([TopicPartition(*place) for place in chosen])

    # --- for a producer's transaction ---

    def offsets_for_transaction(self) -> tuple[list[TopicPartition], Any]:
        """What belongs into the transaction: how far this consumer has come, and as whom."""
        if self._delivery != "exactly-once":
            raise WrongMoment(f"the consumer of a transaction has delivery exactly-once, this one {self._delivery}")
        if self._spoiled:
            raise TransactionAborted(
                f"group {self._group} gave partitions of the transaction to another member; do the transaction again"
            )
        self._ledger.asked_for_more()
        self._in_transaction = self._ledger.committable()
        return _positions(self._in_transaction), self.open().consumer_group_metadata()

    def transaction_committed(self) -> None:
        self._ledger.settle(self._in_transaction)

    def transaction_aborted(self) -> None:
        """Everything handed out since the last commit will be handed out again."""
        self._spoiled = False
        self._seeking().rewind(self._ledger.restart_points())

    # --- inside ---

    def _fetch(self, client: confluent_kafka.Consumer, count: int, timeout_s: float) -> None:
        """Wait for one message and take what else is there: one call for many would wait until it has them all."""
        self._store(client)
        self._polled_at_s = self._clock.monotonic()
        try:
            first = client.poll(timeout_s)
            self._revoked_now.clear()
            inners = [] if first is None else [first, *(client.consume(count - 1, 0) if count > 1 else ())]
        except KafkaException as error:
            raise explained(cause_of(error), self._doing("reading")) from error
        problems = [problem for inner in inners if (problem := inner.error()) is not None]
        messages = [message_of(inner, self._codec) for inner in inners if inner.error() is None]
        if self._revoked_now:
            # Taken from the queue before their partition left, in a call that did not wait, so it cannot be back yet.
            messages = [each for each in messages if (each.topic, each.partition) not in self._revoked_now]
        if self._delivery == "at-most-once" and messages:
            messages = self._committed_first(client, messages)
        self._ledger.fetched(messages)
        for problem in problems:
            if problem.code() not in _PASSING:
                raise explained(problem, self._doing("reading"))
            LOG.warning("%s: %s", self._doing("reading"), problem.str())

    def _committed_first(self, client: confluent_kafka.Consumer, messages: list[Message]) -> list[Message]:
        """At most once: what may be handed out, because it will not be read again. If that fails, nothing may."""
        after = {(each.topic, each.partition): each.offset + 1 for each in messages}
        try:
            self._commit(client, after)
        except SdkError as error:
            if error.code in _MOVED_ON:
                LOG.info("%s: another member reads them", self._doing("committing"))
                return []
            first: dict[Partition, int] = {}
            for each in messages:
                first.setdefault((each.topic, each.partition), each.offset)
            self._seeking().rewind(first)
            raise
        return messages

    def _commit(self, client: confluent_kafka.Consumer, offsets: Mapping[Partition, int]) -> None:
        if not offsets:
            return
        try:
            done = client.commit(offsets=_positions(offsets), asynchronous=False)
        except KafkaException as error:
            raise explained(cause_of(error), self._doing("committing")) from error
        for each in done:
            if each.error is not None:
                raise explained(each.error, self._doing(f"committing {each.topic}-{each.partition}"))
        self._ledger.settle(offsets)

    def _store(self, client: confluent_kafka.Consumer) -> None:
        """At least once: what is acknowledged goes to librdkafka, which commits it in the background."""
        if self._delivery != "at-least-once":
            return
        offsets = self._ledger.committable()
        if offsets:
            try:
                client.store_offsets(offsets=_positions(offsets))
            except KafkaException as error:  # the partition has just left; its next reader starts a little earlier
                LOG.info("%s: %s", self._doing("storing offsets"), error)
            self._ledger.settle(offsets)

    def _revoked(self, client: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        self._store(client)
        self._lost(client, partitions)

    def _lost(self, client: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        places = [(each.topic, each.partition) for each in partitions]
        self._revoked_now.update(places)
        if self._delivery == "exactly-once" and self._ledger.has_unsettled(places):
            self._spoiled = True
        if self._delivery != "at-most-once":  # there, what was fetched is committed: nobody else will hand it out
            self._ledger.forget(places)

    def _seeking(self) -> Seeking:
        client = self.open()
        return Seeking(client, self._ledger, lambda: self._fetch(client, 1, 0.1), self._doing("seeking"))

    def _doing(self, what: str) -> str:
        return f"{what} {', '.join(self._topics)} in group {self._group}"


def _positions(offsets: Mapping[Partition, int]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset) for place, offset in offsets.items()]
