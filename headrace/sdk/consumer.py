"""The blocking consumer.

A thin layer over librdkafka, which prefetches, maintains the group membership and commits in the background. This file
decides when an offset may be committed, and adds limits, seeking and one-line errors. The Ledger tracks which messages
were handed out and acknowledged. AsyncConsumer wraps this class.

librdkafka serves one call at a time, so `ack`, which may come from any thread, only updates the ledger; the polling
thread passes it on to librdkafka. Invariants: a message is handed out once per assignment. At least once: its offset is
stored only after its acknowledgement. At most once: it is handed out only after its offset is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from types import TracebackType
from typing import Any, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.model.tag_filter import TagFilter
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

_OF_CONSUMERS = (  # settings that an admin client does not know
    "group.", "auto.", "enable.", "fetch.", "isolation.", "partition.", "queued.", "session.", "heartbeat.", "max.poll",
    "max.partition", "check.",
)  # fmt: skip
LOG = logging.getLogger("headrace.sdk")

ANSWER_TIMEOUT_S = 10.0
BATCH = 500
ITERATION_WAIT_S = 0.5
KEEP_ALIVE_S = 20.0  # polled at least this often while limits hold messages back, so that the member stays in the group

# librdkafka recovers from these by itself; the program need not act.
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
_MOVED_ON = frozenset(  # the partitions were assigned to another member
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

    `delivery` is the delivery guarantee:

    - "at-most-once": offsets are committed before messages are handed out. A crash loses messages that were not
      processed.
    - "at-least-once" (default): offsets are committed after messages were acknowledged. After a crash the others are
      redelivered.
    - "exactly-once": reads committed transactions only and commits nothing itself; its offsets are committed in a
      producer's transaction, with `exactly_once(...)` or `producer.transaction(consumer)`.

    With `auto_ack` (default) a message counts as acknowledged when the program asks for the next one, by iterating or
    by polling again; without it the program calls `ack`, from any thread and in any order. `rate_limit` is in messages
    per second; `in_flight_limit` is the most messages handed out and not yet acknowledged. `profile`, `codec` and
    further settings are as for Producer.

    With `tags`, it reads only messages with any of these tags, or with all or none of them (`match`). On a headrace
    topic with headrace.tags.enable the broker filters: then the consumer reads, and commits offsets of, the view that
    consumers with equal filters share, and `Message.topic` is that view. Elsewhere the client filters.
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
        tags: Sequence[str] = (),
        match: str = "any",
        clock: Clock | None = None,
        **overrides: Any,
    ) -> None:
        self._bootstrap = bootstrap
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        if not self._topics:
            raise BadSetting("topics is empty: give a consumer at least one topic")
        self._filter = _filter_of(tags, match, self._topics)
        self._filters_here = False  # some broker or topic cannot do it
        self._group = group
        self._delivery = delivery
        self._settings = consumer_settings(bootstrap, group, delivery, profile, overrides)
        self._codec = codec_of(codec)
        self._clock = clock or SystemClock()
        self._ledger = Ledger(auto_ack, in_flight_limit, Pace(rate_limit) if rate_limit is not None else None)
        self._client: confluent_kafka.Consumer | None = None
        self._closed = False
        self._news = Event()  # set by an acknowledgement and by close
        self._polled_at_s = 0.0
        self._revoked_now: set[Partition] = set()
        self._in_transaction: dict[Partition, int] = {}
        self._spoiled = False  # a partition was revoked while some of its messages were in no committed transaction

    # --- open and close ---

    def open(self) -> confluent_kafka.Consumer:
        """Start the client and subscribe, unless it is running. Every other call does this by itself."""
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
                client.subscribe(self._read_from(), on_revoke=self._revoked, on_lost=self._lost)
            except SdkError:
                client.close()
                raise
            self._client = client
        return self._client

    def _read_from(self) -> list[str]:
        """The topics, or the views of them by which the broker filters."""
        if self._filter is None:
            return self._topics
        from headrace.sdk.tag_view import shared_view  # loads the admin client

        names = {key: self._settings[key] for key in self._settings if not key.startswith(_OF_CONSUMERS)}
        views = [shared_view(names, topic, self._filter) for topic in self._topics]
        self._filters_here = None in views
        return [view or topic for view, topic in zip(views, self._topics, strict=True)]

    def close(self) -> None:
        """Commit what was acknowledged and leave the group. Messages without an acknowledgement will be redelivered."""
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
        """Poll without waiting: whether there are messages to `take`."""
        self._ledger.asked_for_more()
        return self._ledger.has_fetched and self._ledger.room(self._clock.monotonic()) > 0

    def ask(self, wanted: int, timeout_s: float) -> None:
        """The waiting half of poll: returns when there are messages to `take`, or after the timeout."""
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
        """The quick half of poll: hand out messages that are already fetched."""
        return self._ledger.take(wanted, self._clock.monotonic())

    def ack(self, *messages: Message) -> None:
        """The program is done with these messages. May be called from any thread, in any order."""
        self._ledger.acknowledge(messages)
        self._news.set()

    @property
    def in_flight(self) -> int:
        """Messages handed out and not yet acknowledged."""
        return self._ledger.in_flight

    def commit(self) -> None:
        """Commit what was acknowledged (with auto_ack: what was handed out), and wait until that is done."""
        if self._delivery == "exactly-once":
            raise WrongMoment("an exactly-once consumer commits in a transaction: use producer.transaction(consumer)")
        self._ledger.asked_for_more()
        self._commit(self.open(), self._ledger.progress())

    # --- where to read ---

    def assignment(self) -> list[Partition]:
        """The partitions this member reads now, as (topic, partition)."""
        return [(each.topic, each.partition) for each in self.open().assignment()]

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue reading one partition at this offset."""
        self._seeking().to_offsets({(topic, partition): offset})

    def seek_to_start(self) -> None:
        """Continue reading all assigned partitions at their first message; waits for an assignment if there is none."""
        self._seeking().to_start()

    def seek_to_end(self) -> None:
        """Continue reading all assigned partitions at their end: only messages written from now on."""
        self._seeking().to_end()

    def seek_to_time(self, moment: Moment) -> None:
        """Continue reading all assigned partitions at the first message at or after a time (datetime or epoch ms)."""
        self._seeking().to_time(moment)

    def pause(self, *places: Partition) -> None:
        """Return no messages of these partitions, or of any if none is named, until `resume`."""
        chosen = list(places) or self.assignment()
        self.open().pause([TopicPartition(*place) for place in chosen])
        self._ledger.hold(chosen)

    def resume(self, *places: Partition) -> None:
        """Return messages of these partitions again, or of all if none is named."""
        chosen = list(places) or self.assignment()
        self._ledger.release(chosen)
        self.open().resume([TopicPartition(*place) for place in chosen])

    # --- for a producer's transaction ---

    def offsets_for_transaction(self) -> tuple[list[TopicPartition], Any]:
        """What the transaction commits for this consumer: its offsets and its group metadata."""
        if self._delivery != "exactly-once":
            raise WrongMoment(
                f"a transaction needs a consumer with delivery exactly-once, and this one has {self._delivery}"
            )
        if self._spoiled:
            raise TransactionAborted(
                f"group {self._group} assigned partitions of the transaction to another member; retry the transaction"
            )
        self._ledger.asked_for_more()
        self._in_transaction = self._ledger.committable()
        return _positions(self._in_transaction), self.open().consumer_group_metadata()

    def transaction_committed(self) -> None:
        self._ledger.settle(self._in_transaction)

    def transaction_aborted(self) -> None:
        """Everything handed out since the last commit will be redelivered."""
        self._spoiled = False
        self._seeking().rewind(self._ledger.restart_points())

    # --- inside ---

    def _fetch(self, client: confluent_kafka.Consumer, count: int, timeout_s: float) -> None:
        """Wait for one message, then take what else is there: asking for many at once would wait for all of them."""
        self._store(client)
        self._polled_at_s = self._clock.monotonic()
        try:
            first = client.poll(timeout_s)
            self._revoked_now.clear()
            inners = [] if first is None else [first, *(client.consume(count - 1, 0) if count > 1 else ())]
        except KafkaException as error:
            raise explained(cause_of(error), self._doing("reading")) from error
        if not inners and self._filter is not None and not self._filters_here:
            found = client.position(client.assignment())
            self._ledger.reached({(each.topic, each.partition): each.offset for each in found if each.offset >= 0})
        problems = [problem for inner in inners if (problem := inner.error()) is not None]
        messages = [message_of(inner, self._codec) for inner in inners if inner.error() is None]
        if self._revoked_now:
            # Dequeued before their partition was revoked, by a call that did not wait, so it cannot be reassigned yet.
            messages = [each for each in messages if (each.topic, each.partition) not in self._revoked_now]
        if self._filters_here and self._filter is not None:
            messages = self._ledger.pass_over(messages, self._filter)
        if self._delivery == "at-most-once" and messages:
            messages = self._committed_first(client, messages)
        self._ledger.fetched(messages)
        for problem in problems:
            if problem.code() not in _PASSING:
                raise explained(problem, self._doing("reading"))
            LOG.warning("%s: %s", self._doing("reading"), problem.str())

    def _committed_first(self, client: confluent_kafka.Consumer, messages: list[Message]) -> list[Message]:
        """At most once: commit, then return what may be handed out. If the commit fails, nothing may."""
        after = {(each.topic, each.partition): each.offset + 1 for each in messages}
        try:
            self._commit(client, after)
        except SdkError as error:
            if error.code in _MOVED_ON:
                LOG.info("%s: skipped, another member owns the partitions now", self._doing("committing"))
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
        """At least once: pass acknowledged offsets to librdkafka, which commits them in the background."""
        if self._delivery != "at-least-once":
            return
        offsets = self._ledger.committable()
        if offsets:
            try:
                client.store_offsets(offsets=_positions(offsets))
            except KafkaException as error:  # just revoked; the next owner starts a little earlier
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
        if self._delivery != "at-most-once":  # there, fetched messages are committed already
            self._ledger.forget(places)

    def _seeking(self) -> Seeking:
        client = self.open()
        return Seeking(client, self._ledger, lambda: self._fetch(client, 1, 0.1), self._doing("seeking"))

    def _doing(self, what: str) -> str:
        return f"{what} {', '.join(self._topics)} in group {self._group}"


def _filter_of(tags: Sequence[str], match: str, topics: Sequence[str]) -> TagFilter | None:
    if not tags and match == "any":
        return None
    if any(topic.startswith("^") for topic in topics):
        raise BadSetting("tags need topics by name: a pattern matches views as well")
    try:
        return TagFilter((tags,) if isinstance(tags, str) else tuple(dict.fromkeys(tags)), match)
    except ValueError as error:
        raise BadSetting(f"tags: {error}") from None


def _positions(offsets: Mapping[Partition, int]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset) for place, offset in offsets.items()]
