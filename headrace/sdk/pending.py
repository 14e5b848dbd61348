"""Reads what is pending in a topic, through the read-only topic that the broker offers for it.

Used by Schedules. The view `<topic>.pending` is created when it is first asked for; in it the offset of a record is the
id of the pending message. Invariant: a scan is a snapshot: it ends where the view ended, and returns no message that
was delivered or cancelled before the scan began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from headrace.model.delays import PENDING_SUFFIX, VIEW_PENDING
from headrace.model.tag_filter import VIEW_OF
from headrace.sdk.codecs import Codec
from headrace.sdk.delayed_topics import connection_settings, open_admin, require_delays, topic_settings
from headrace.sdk.errors import BadMessage, SdkError, TopicMissing, Unreachable, cause_of, words_of
from headrace.sdk.received import message_of
from headrace.sdk.scheduled import Scheduled, scheduled_of
from headrace.sdk.snapshot import Snapshot
from headrace.sdk.topic_facts import partition_count

ANSWER_TIMEOUT_S = 10.0
WAIT_S = 0.1
NEW_TOPIC_TURNS = 50  # of WAIT_S: how long brokers may take to learn of the view that was just created


class PendingView:
    def __init__(self, settings: Mapping[str, Any], codec: Codec, pause: Callable[[float], None]) -> None:
        self._settings = connection_settings(settings)
        self._bootstrap = str(self._settings["bootstrap.servers"])
        self._codec = codec
        self._pause = pause  # blocks this thread for some seconds
        self._admin: Any = None

    def scan(self, topic: str) -> Iterator[Scheduled]:
        """Everything that is pending, partition by partition in the order of ids as far as answers come in order."""
        view = self._existing(topic)
        snapshot = self._snapshot(topic)
        try:
            count = self._partition_count(snapshot.client, view)
            places = [TopicPartition(view, number, OFFSET_BEGINNING) for number in range(count)]
            for inner in snapshot.read(places):
                yield scheduled_of(topic, message_of(inner, self._codec))
        finally:
            snapshot.close()

    def find(self, topic: str, partition: int, message_id: int) -> Scheduled | None:
        """One pending message; None if it is not pending."""
        view = self._existing(topic)
        snapshot = self._snapshot(topic)
        try:
            count = self._partition_count(snapshot.client, view)
            if partition >= count:
                raise TopicMissing(f"topic {topic} has no partition {partition}: it has 0 to {count - 1}")
            first = next(snapshot.read([TopicPartition(view, partition, message_id)]), None)
        finally:
            snapshot.close()
        if first is None or first.offset() != message_id:
            return None
        return scheduled_of(topic, message_of(first, self._codec))

    def _snapshot(self, topic: str) -> Snapshot:
        return Snapshot(self._settings, f"reading what is pending in {topic}")

    # --- the view ---

    def _existing(self, topic: str) -> str:
        """The view's name; it is created if it does not exist."""
        view = topic + PENDING_SUFFIX
        if self._admin is None:
            self._admin = open_admin(self._settings)
        try:
            settings = topic_settings(self._admin, self._bootstrap, view)
        except TopicMissing:
            require_delays(self._admin, self._bootstrap, topic)
            self._create(topic, view)
            return view
        if settings.get(VIEW_OF) != topic or settings.get(VIEW_PENDING) != "true":
            raise BadMessage(
                f"topic {view} exists, but does not list what is pending in {topic}: rename or delete it, "
                f"because pending messages of {topic} are read from a view of this name"
            )
        return view

    def _create(self, topic: str, view: str) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        settings = {VIEW_OF: topic, VIEW_PENDING: "true"}
        asked = [NewTopic(view, -1, -1, config=settings)]
        try:
            self._admin.create_topics(asked, request_timeout=ANSWER_TIMEOUT_S)[view].result(ANSWER_TIMEOUT_S + 1)
        except KafkaException as error:
            cause = cause_of(error)
            if cause.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SdkError(
                    f"the broker at {self._bootstrap} does not list what is pending in {topic}, it refuses to create "
                    f"the view {view}: {words_of(cause)}",
                    cause.code(),
                ) from error
        except TimeoutError:
            raise Unreachable(f"creating {view}: no answer within {ANSWER_TIMEOUT_S:g} s") from None

    def _partition_count(self, consumer: confluent_kafka.Consumer, view: str) -> int:
        for _ in range(NEW_TOPIC_TURNS):
            try:
                count = partition_count(consumer, self._bootstrap, view, ANSWER_TIMEOUT_S)
            except TopicMissing:
                count = 0
            if count:
                return count
            self._pause(WAIT_S)
        raise TopicMissing(f"topic {view} was created, but {self._bootstrap} does not know it yet: try again")
