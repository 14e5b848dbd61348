"""A transactional producer made of single requests, of any version, against a real broker."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.wire.batches import TRANSACTIONAL
from headrace.wire.messages import Message
from headrace.wire.records import Record, encode_batch
from tests.raw_client import RawClient

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR, CREATE_TOPICS = 0, 1, 2, 3, 9, 10, 19
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, WRITE_MARKERS, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
FETCH_VERSION = 12
TOPIC = "t"


class TransactionClient(RawClient):
    def __init__(self, port: int, transactional_id: str = "x") -> None:
        super().__init__(port)
        self.id = transactional_id
        self.producer_id, self.epoch, self.sequence = -1, -1, 0
        self.find(self.id, 1)

    def find(self, key: str, kind: int) -> None:
        """Ask for a coordinator, which makes its topic, until it is there."""
        for _ in range(100):
            body = Message(key_type=kind, coordinator_keys=[key])
            if self.call(FIND_COORDINATOR, 4, body).coordinators[0].error_code == 0:
                return
        raise AssertionError("no coordinator was found")

    def create_topic(self, partitions: int = 3) -> None:
        topic = Message(name=TOPIC, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        made = self.call(CREATE_TOPICS, 5, Message(topics=[topic], timeout_ms=20_000, validate_only=False))
        assert made.topics[0].error_code == 0, made

    def init(self, version: int = 5, timeout_ms: int = 60_000, *, goes_on: bool = False) -> int:
        """The error code; the producer id and epoch are kept."""
        known = (self.producer_id, self.epoch) if goes_on else (-1, -1)
        body = Message(
            transactional_id=self.id,
            transaction_timeout_ms=timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
        )
        for _ in range(100):
            reply = self.call(INIT_PRODUCER_ID, version, body)
            if reply.error_code not in (14, 51):  # COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS
                break
        if reply.error_code == 0:
            self.producer_id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0
        return int(reply.error_code)

    def add(self, version: int = 3, partitions: Sequence[int] = (0,), topic: str = TOPIC, epoch: int = -1) -> list[int]:
        topics = [Message(name=topic, partitions=list(partitions))]
        epoch = self.epoch if epoch < 0 else epoch
        if version < 4:
            body = Message(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            found = self.call(ADD_PARTITIONS, version, body).results_by_topic_v3_and_below
        else:
            found = self.broker_asks(version, topics, epoch, verify_only=False)
        return [part.partition_error_code for part in found[0].results_by_partition]

    def verify(self, partitions: Sequence[int], version: int = 5) -> list[int]:
        topics = [Message(name=TOPIC, partitions=list(partitions))]
        found = self.broker_asks(version, topics, self.epoch, verify_only=True)
        return [part.partition_error_code for part in found[0].results_by_partition]

    def broker_asks(self, version: int, topics: list[Message], epoch: int, *, verify_only: bool) -> list[Message]:
        transaction = Message(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=topics,
        )
        answer = self.call(ADD_PARTITIONS, version, Message(transactions=[transaction]))
        results: list[Message] = answer.results_by_transaction[0].topic_results
        return results

    def produce(self, version: int, value: bytes = b"v", partition: int = 0, **odd: object) -> int:
        """One record in the transaction; the error code. `odd` replaces fields of the request or of the batch."""
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, value, ())],
            producer_id=self.producer_id,
            producer_epoch=odd.get("epoch", self.epoch),  # type: ignore[arg-type]
            base_sequence=self.sequence,
            attributes=odd.get("attributes", TRANSACTIONAL),  # type: ignore[arg-type]
        )
        data = Message(index=partition, records=bytes(batch))
        name = odd.get("topic", TOPIC)
        topic = Message(name=name, topic_id=self.topic_id() if version >= 13 else None, partition_data=[data])
        body = Message(
            transactional_id=odd.get("transactional_id", self.id),
            acks=odd.get("acks", -1),
            timeout_ms=20_000,
            topic_data=[topic],
        )
        code = int(self.call(PRODUCE, version, body).responses[0].partition_responses[0].error_code)
        self.sequence += code == 0
        return code

    def topic_id(self) -> object:
        answer = self.call(METADATA, 12, Message(topics=[Message(topic_id=None, name=TOPIC)]))
        return answer.topics[0].topic_id

    def end(self, version: int, *, commit: bool, epoch: int = -1) -> int:
        body = Message(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch < 0 else epoch,
            committed=commit,
        )
        reply = self.call(END_TXN, version, body)
        if version >= 5 and reply.error_code == 0:
            self.producer_id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0
        return int(reply.error_code)

    def send_offset(self, version: int, offset: int, group: str = "g", **more: object) -> int:
        index = more.get("partition", 0)
        part = Message(partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
        body = Message(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=more.get("generation", -1),
            member_id=more.get("member", ""),
            group_instance_id=None,
            topics=[Message(name=TOPIC, partitions=[part])],
        )
        return int(self.call(TXN_OFFSET_COMMIT, version, body).topics[0].partitions[0].error_code)

    def add_offsets(self, version: int = 3, group: str = "g") -> int:
        body = Message(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return int(self.call(ADD_OFFSETS, version, body).error_code)

    def committed(self, *, stable: bool, group: str = "g") -> tuple[int, int]:
        """(offset, error code) of the group."""
        topics = [Message(name=TOPIC, partition_indexes=[0])]
        answer = self.call(OFFSET_FETCH, 7, Message(group_id=group, topics=topics, require_stable=stable))
        found = answer.topics[0].partitions[0]
        return found.committed_offset, found.error_code

    def fetch(self, *, committed: bool = True) -> Message:
        """Partition 0's part of the answer."""
        self.send_fetch(committed=committed)
        return self.receive_fetch()[1]

    def receive_fetch(self) -> tuple[int, Message]:
        correlation_id, answer = self.receive(FETCH, FETCH_VERSION)
        return correlation_id, answer.responses[0].partitions[0]

    def send_fetch(self, *, committed: bool = True, max_wait_ms: int = 0, offset: int = 0) -> int:
        part = Message(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        body = Message(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=int(max_wait_ms > 0),
            max_bytes=1 << 20,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[Message(topic=TOPIC, partitions=[part])],
            forgotten_topics_data=[],
            rack_id="",
        )
        return self.send(FETCH, FETCH_VERSION, body)

    def end_offset(self, *, committed: bool, version: int = 5) -> int:
        part = Message(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topics = [Message(name=TOPIC, partitions=[part])]
        answer = self.call(LIST_OFFSETS, version, Message(replica_id=-1, isolation_level=int(committed), topics=topics))
        return int(answer.topics[0].partitions[0].offset)
