"""Sends batches to the leaders of their partitions: several in flight, each stored once and in order.

Owned by one task. The producer is idempotent: a batch carries the sequence number of its first record, so the broker
recognizes duplicates, and a batch may be sent again whenever its outcome is unknown. Normally up to five requests per
leader are in flight. When a leader moves, a connection is lost or a batch is rejected with a retriable error, all
pending responses are received first; then the batches that were not accepted are sent again, one per partition at a
time. The first batch of a partition is sent alone: a broker that does not know the producer accepts any sequence
number, so if the first batch were rejected with a retriable error, a later one would be accepted as the first.

Invariant: when `flush` returns, every batch is stored; when anything raises, the task has failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from headrace.client.blocking import Address, ConnectionLost
from headrace.client.metadata import MOVED, Cluster
from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition
from headrace.spark.sink.options import SinkOptions
from headrace.spark.sink.transactions import ProducerIdAndEpoch, Transactions
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.world.clock import SystemClock

_VERSION = 9
_ON_THEIR_WAY = 5  # a broker remembers this many batches of a producer
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_STORED = {ErrorCode.none, ErrorCode.duplicate_sequence_number}
_FOR_THE_MOMENT = MOVED | {
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.concurrent_transactions,
}
# A batch behind one with a retriable error is out of order, and is sent again after it.
_WHILE_OTHERS_ARE_ON_THEIR_WAY = _FOR_THE_MOMENT | {ErrorCode.out_of_order_sequence_number}
_SAY = {
    ErrorCode.message_too_large: "the batch is too large: raise max.message.bytes of the topic, or lower "
    "kafka.batch.size if no single row is that large",
    ErrorCode.invalid_record: "the records are invalid: does a compacted topic get a row without a key?",
    ErrorCode.invalid_timestamp: "a timestamp is too far from now for message.timestamp.before.max.ms or "
    "message.timestamp.after.max.ms of the topic",
    ErrorCode.producer_fenced: "its transaction was ended by another producer or an administrator",
    ErrorCode.invalid_producer_epoch: "its transaction was ended by another producer or an administrator, or was open "
    "longer than kafka.transaction.timeout.ms",
    ErrorCode.unknown_producer_id: "its transaction was open longer than kafka.transaction.timeout.ms",
    ErrorCode.invalid_txn_state: "its transaction was open longer than kafka.transaction.timeout.ms, or was ended",
    ErrorCode.topic_authorization_failed: "this client is not authorized to write there",
}


class Outgoing(NamedTuple):
    place: TopicPartition
    data: bytearray
    first_sequence: int


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        lane: Cluster,
        transactions: Transactions,
        options: SinkOptions,
        producer: ProducerIdAndEpoch,
        transactional_id: str | None,
        clock: SystemClock,
    ) -> None:
        self._cluster = cluster  # for all other requests
        self._lane = lane  # separate connections for batches: other requests would queue behind them
        self._transactions = transactions
        self._options = options
        self._producer = producer
        self._transactional_id = transactional_id
        self._clock = clock
        self._added: set[TopicPartition] = set()  # partitions that were added to the transaction
        self._collected: dict[Address, dict[TopicPartition, Outgoing]] = {}  # the next request for each leader
        self._on_their_way: dict[Address, deque[list[Outgoing]]] = {}
        self._again: list[Outgoing] = []
        self._begun: set[TopicPartition] = set()  # partitions that were sent a batch
        self._alone: set[TopicPartition] = set()  # their first batch is in flight, so none may follow yet

    def send(self, batch: Outgoing) -> None:
        """Send a batch, which is the next of its partition."""
        leader = self._cluster.leader(*batch.place)
        collected = self._collected.get(leader, {})
        held = sum(len(each.data) for each in collected.values())
        if collected and (batch.place in collected or held + len(batch.data) > self._options.request_bytes):
            self._dispatch(leader)
            leader = self._cluster.leader(*batch.place)  # which may have moved meanwhile
        self._collected.setdefault(leader, {})[batch.place] = batch
        if len(batch.data) >= self._options.request_bytes:
            self._dispatch(leader)

    def flush(self) -> None:
        for leader in list(self._collected):
            self._dispatch(leader)
        self._settle()

    # --- the normal path ----------------------------------------------------------------------------------------------

    def _dispatch(self, leader: Address) -> None:
        batches = list(self._collected.pop(leader, {}).values())
        if not batches:
            return
        self._enter(batches)
        while not self._again and len(self._on_their_way.get(leader, ())) >= _ON_THEIR_WAY:
            self._take_answer(leader)
        if self._is_too_early(batches):
            self._take_all_answers()
        if self._again:
            self._again += batches
            self._settle()
            return
        try:
            self._lane.connection(leader).send(ApiKey.PRODUCE, self._request(batches), version=_VERSION)
        except ConnectionLost:
            self._lose(leader, batches)
            self._settle()
            return
        self._on_their_way.setdefault(leader, deque()).append(batches)
        fresh = {batch.place for batch in batches} - self._begun
        self._begun |= fresh
        self._alone |= fresh

    def _is_too_early(self, batches: list[Outgoing]) -> bool:
        return any(batch.place in self._alone for batch in batches)

    def _enter(self, batches: Iterable[Outgoing]) -> None:
        """Add partitions to the transaction before their first batch is sent."""
        fresh = [batch.place for batch in batches if batch.place not in self._added]
        if fresh and self._transactional_id is not None:
            self._transactions.add(self._transactional_id, self._producer, fresh)
            self._added.update(fresh)

    def _take_answer(self, leader: Address) -> None:
        """Receive the response to the oldest request in flight to this leader."""
        try:
            answer = self._lane.connection(leader).receive(self._patience_s())
        except ConnectionLost:
            self._lose(leader, [])
            return
        self._judge(self._on_their_way[leader].popleft(), answer, _WHILE_OTHERS_ARE_ON_THEIR_WAY)

    def _take_all_answers(self) -> None:
        for leader in list(self._on_their_way):
            while self._on_their_way.get(leader):
                self._take_answer(leader)

    def _lose(self, leader: Address, unsent: list[Outgoing]) -> None:
        for batches in self._on_their_way.pop(leader, ()):
            self._again += batches
        self._again += unsent

    def _judge(self, batches: list[Outgoing], answer: Message, for_the_moment: frozenset[ErrorCode]) -> None:
        codes = {
            (topic.name, part.index): (ErrorCode(part.error_code), part.error_message)
            for topic in answer.responses
            for part in topic.partition_responses
        }
        for batch in batches:
            code, words = codes[batch.place]
            if code in for_the_moment:
                self._again.append(batch)
            elif code in _STORED:
                self._alone.discard(batch.place)
            else:
                raise Failure(self._refusal(batch, code, words))

    def _refusal(self, batch: Outgoing, code: ErrorCode, words: str | None) -> str:
        topic, partition = batch.place
        reason = _SAY.get(code, words or "see the broker's log")
        size = len(batch.data)
        return f"topic {topic}, partition {partition} rejected a batch of {size} bytes with {code.name}: {reason}"

    # --- after an error -----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Receive all pending responses, then send the batches that are not stored, and after them those not sent yet:
        leaders may have moved, and batches must stay in order on the way to a new leader."""
        self._take_all_answers()
        if not self._again:
            return
        for collected in self._collected.values():
            self._enter(collected.values())
            self._again += collected.values()
        self._collected.clear()
        begun_s, pause_s = self._clock.monotonic(), _FIRST_PAUSE_S
        while self._again:
            lost = self._send_again()
            if not self._again:
                return
            if self._clock.monotonic() - begun_s > self._options.delivery_timeout_ms / 1000:
                topic, partition = self._again[0].place
                raise Failure(
                    f"topic {topic}, partition {partition} accepted no records for "
                    f"{self._options.delivery_timeout_ms} ms (kafka.delivery.timeout.ms): "
                    f"{lost or 'its leader rejected them with retriable errors'}"
                )
            self._clock.pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _send_again(self) -> ConnectionLost | None:
        """Send the oldest batch of each partition to its current leader; returns the last lost connection, if any."""
        queue, self._again = sorted(self._again, key=lambda batch: (batch.place, batch.first_sequence)), []
        turn: dict[TopicPartition, Outgoing] = {}
        for batch in queue:
            if turn.setdefault(batch.place, batch) is not batch:
                self._again.append(batch)
        by_leader: dict[Address, list[Outgoing]] = {}
        for topic in {topic for topic, _ in turn}:
            self._cluster.forget(topic)
        for place, batch in turn.items():
            by_leader.setdefault(self._cluster.leader(*place), []).append(batch)
        lost: ConnectionLost | None = None
        for leader, batches in by_leader.items():
            try:
                connection = self._lane.connection(leader)
                answer = connection.call(ApiKey.PRODUCE, self._request(batches), self._patience_s(), version=_VERSION)
            except ConnectionLost as error:
                lost = error
                self._again += batches
            else:
                self._judge(batches, answer, _FOR_THE_MOMENT)
        return lost

    def _request(self, batches: list[Outgoing]) -> Message:
        topics: dict[str, list[Message]] = {}
        for batch in batches:
            topic, partition = batch.place
            topics.setdefault(topic, []).append(Message(index=partition, records=batch.data))
        return Message(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=[Message(name=name, partition_data=data) for name, data in topics.items()],
        )

    def _patience_s(self) -> float:
        return self._options.request_timeout_ms / 1000 + 5
