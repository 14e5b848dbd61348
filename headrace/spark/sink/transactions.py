"""Transaction requests of the sink: begin in one process, end in another, describe, and list by prefix.

Tasks begin transactions and the driver ends them. The requests are those of transaction.version 0 (KIP-98): a producer
keeps its epoch when its transaction ends, so any process that knows id and epoch can repeat EndTxn, with the same
result. The Cluster retries while the coordinator moves or loads; this file only waits while the end of a transaction is
still in progress (CONCURRENT_TRANSACTIONS).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from headrace.client.blocking import Address, ConnectionLost
from headrace.client.metadata import MOVED, Cluster
from headrace.model.failure import Failure
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import SystemClock

_INIT_VERSION = 4
_VERSIONS: dict[int, int] = {ApiKey.INIT_PRODUCER_ID: _INIT_VERSION, ApiKey.ADD_PARTITIONS_TO_TXN: 3, ApiKey.END_TXN: 3}
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25
_OPEN_STATE = "Ongoing"
_WAIT = MOVED | {ErrorCode.concurrent_transactions}
COMMITTED_STATES = frozenset({"PrepareCommit", "CompleteCommit"})

FENCED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping})


class ProducerIdAndEpoch(NamedTuple):
    id: int
    epoch: int


class Described(NamedTuple):
    """The coordinator's description of a transactional id."""

    state: str  # "" if the id is unknown
    producer: ProducerIdAndEpoch

    @property
    def is_open(self) -> bool:
        return self.state == _OPEN_STATE


class Transactions:
    def __init__(self, cluster: Cluster, clock: SystemClock, patience_s: float) -> None:
        self._cluster = cluster
        self._clock = clock
        self._patience_s = patience_s

    def begin(self, transactional_id: str, timeout_ms: int) -> ProducerIdAndEpoch:
        """InitProducerId: fences earlier producers with this id; their open transaction is aborted when this
        returns."""
        answer = self._until_settled(
            transactional_id, ApiKey.INIT_PRODUCER_ID, _beginning(transactional_id, timeout_ms)
        )
        if answer.error_code == ErrorCode.invalid_transaction_timeout:
            raise Failure(
                f"the brokers do not allow transactions of {timeout_ms} ms: lower kafka.transaction.timeout.ms, or "
                "raise transaction.max.timeout.ms of the brokers"
            )
        _check(answer.error_code, f"the transactional id {transactional_id} cannot be used")
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def begin_without(self) -> ProducerIdAndEpoch:
        """InitProducerId for an idempotent producer without transactions."""
        answer = self._cluster.call(ApiKey.INIT_PRODUCER_ID, _beginning(None, 60_000))
        _check(answer.error_code, "no broker assigns a producer id")
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def fence(self, transactional_id: str) -> None:
        """Abort the open transaction of this id and fence its producer. Markers may be written a little later."""
        answer = self._ask(
            transactional_id, ApiKey.INIT_PRODUCER_ID, _beginning(transactional_id, 60_000), _INIT_VERSION
        )
        if answer.error_code != ErrorCode.concurrent_transactions:  # the abort is in progress
            _check(answer.error_code, f"the transaction {transactional_id} cannot be aborted")

    def add(self, transactional_id: str, producer: ProducerIdAndEpoch, places: Iterable[tuple[str, int]]) -> None:
        """AddPartitionsToTxn; the first ones open the transaction."""
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        body = Message(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[Message(name=name, partitions=found) for name, found in topics.items()],
        )
        answer = self._until_settled(transactional_id, ApiKey.ADD_PARTITIONS_TO_TXN, body)
        for topic in answer.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                _check(
                    result.partition_error_code,
                    f"{topic.name}-{result.partition_index} cannot be added to the transaction {transactional_id}",
                )

    def end(self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool) -> ErrorCode:
        """EndTxn, which may be repeated. The caller judges any error code."""
        body = Message(
            transactional_id=transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        return ErrorCode(self._until_settled(transactional_id, ApiKey.END_TXN, body).error_code)

    def describe(self, transactional_id: str) -> Described:
        answer = self._ask(
            transactional_id, ApiKey.DESCRIBE_TRANSACTIONS, Message(transactional_ids=[transactional_id]), None
        )
        (found,) = answer.transaction_states
        if found.error_code == ErrorCode.transactional_id_not_found:
            return Described("", ProducerIdAndEpoch(-1, -1))
        _check(found.error_code, f"the transaction {transactional_id} cannot be looked up")
        return _described(found)

    def describe_all(self, names: Sequence[str]) -> dict[str, Described]:
        """`describe` for many ids, with few requests."""
        homes: dict[Address, list[str]] = {}
        found: dict[str, Described] = {}
        with suppress(ConnectionLost, KafkaError):  # what is missing then is asked for below, with retries
            for name, address in self._cluster.find_coordinators("transaction", names).items():
                homes.setdefault(address, []).append(name)
            for address, theirs in homes.items():
                answer = self._cluster.call_broker(
                    address, ApiKey.DESCRIBE_TRANSACTIONS, Message(transactional_ids=theirs)
                )
                for state in answer.transaction_states:
                    if state.error_code == ErrorCode.none:
                        found[state.transactional_id] = _described(state)
        return {name: found.get(name) or self.describe(name) for name in names}

    def open_ids(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix whose transaction is open, on all brokers."""
        found: list[str] = []
        for address in self._cluster.brokers():
            answer = self._cluster.call_broker(address, ApiKey.LIST_TRANSACTIONS, Message(state_filters=[_OPEN_STATE]))
            _check(answer.error_code, f"the broker at {address} cannot list its transactions")
            ids = (str(state.transactional_id) for state in answer.transaction_states)
            found += [each for each in ids if each.startswith(prefix)]
        return found

    def _ask(self, transactional_id: str, api_key: int, body: Message, version: int | None) -> Message:
        return self._cluster.call_coordinator("transaction", transactional_id, api_key, body, version=version)

    def _until_settled(self, transactional_id: str, api_key: int, body: Message) -> Message:
        """Retry until the end of this transaction, or of the one before, is complete in all partitions."""
        version = _VERSIONS[api_key]
        start_s, pause_s = self._clock.monotonic(), _FIRST_PAUSE_S
        while True:
            answer = self._ask(transactional_id, api_key, body, version)
            if not _codes(answer) & _WAIT or self._clock.monotonic() - start_s > self._patience_s:
                return answer
            self._cluster.forget_coordinator("transaction", transactional_id)
            self._clock.pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _beginning(transactional_id: str | None, timeout_ms: int) -> Message:
    return Message(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )


def _described(state: Message) -> Described:
    return Described(state.transaction_state, ProducerIdAndEpoch(state.producer_id, state.producer_epoch))


def _codes(answer: Message) -> set[int]:
    """The error codes of a response: of the whole, or of each partition for AddPartitionsToTxn."""
    topics = getattr(answer, "results_by_topic_v3_and_below", [])
    return {
        answer.error_code,
        *(result.partition_error_code for topic in topics for result in topic.results_by_partition),
    }


def _check(code: int, what: str) -> None:
    if code != ErrorCode.none:
        raise KafkaError(ErrorCode(code), f"{what}: {ErrorCode(code).name}")
