"""What the coordinator's tests stand on: a journal in memory that can be slow or fail, and a cluster of one broker."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence

from headrace.model.image import GROUP_OFFSETS_TOPIC, BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.model.journal_entry import JournalEntry
from headrace.model.transaction_end import TransactionEnd
from headrace.wire.errors import ErrorCode, KafkaError

BROKER_ID = 7


class MemoryJournal:
    """Partitions as lists. `hold` keeps appends uncommitted; `refuse` and `lose` make the next one fail."""

    def __init__(self) -> None:
        self.entries: dict[int, list[JournalEntry]] = {}
        self.reads = 0
        self._held: list[asyncio.Future[None]] | None = None
        self._reading: asyncio.Event | None = None
        self._read_error: Exception | None = None
        self._refusal: KafkaError | None = None
        self._refusal_of_all: KafkaError | None = None
        self._loss: KafkaError | None = None
        self.out_of_touch = False

    def check_leads(self, topic: str, partition: int) -> None:
        if self.out_of_touch:
            raise KafkaError(ErrorCode.not_leader_or_follower)

    def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        producer: tuple[int, int] | None = None,
    ) -> Awaitable[None]:
        producer_id = -1 if producer is None else producer[0]
        return self._append(partition, [JournalEntry(0, key, value, 0, producer_id) for key, value in records])

    def append_end(self, topic: str, partition: int, end: TransactionEnd) -> Awaitable[None]:
        return self._append(partition, [JournalEntry(0, None, None, 0, end.producer_id, end.commit)])

    def _append(self, partition: int, entries: list[JournalEntry]) -> Awaitable[None]:
        if self._refusal_of_all is not None:
            raise self._refusal_of_all
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._loss is not None:
            loss, self._loss = self._loss, None
            asyncio.get_running_loop().call_soon(committed.set_exception, loss)
            return committed
        self.entries.setdefault(partition, []).extend(entries)
        if self._held is None:
            committed.set_result(None)
        else:
            self._held.append(committed)
        return committed

    def put(self, partition: int, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """As if they had been there before."""
        self.entries[partition] = [JournalEntry(0, key, value, 0) for key, value in records]

    @property
    def written(self) -> dict[int, list[tuple[bytes, bytes | None]]]:
        """The plain records of each partition."""
        return {
            partition: [(entry.key, entry.value) for entry in entries if entry.key is not None]
            for partition, entries in self.entries.items()
        }

    async def read(self, topic: str, partition: int) -> AsyncIterator[Sequence[JournalEntry]]:
        self.reads += 1
        if self._reading is not None:
            await self._reading.wait()
        if self._read_error is not None:
            error, self._read_error = self._read_error, None
            raise error
        entries = self.entries.get(partition, [])
        for start in range(0, len(entries), 3):
            yield [entry._replace(offset=start + at) for at, entry in enumerate(entries[start : start + 3])]

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        """Commits everything that was held."""
        held, self._held = self._held or [], None
        for committed in held:
            if not committed.done():
                committed.set_result(None)

    def block_reads(self) -> None:
        self._reading = asyncio.Event()

    def unblock_reads(self) -> None:
        assert self._reading is not None
        self._reading.set()

    def fail_read(self, error: Exception) -> None:
        """The next reader gets nothing."""
        self._read_error = error

    def refuse(self, error: KafkaError) -> None:
        """The next append fails at once."""
        self._refusal = error

    def refuse_all(self, error: KafkaError | None) -> None:
        """Every append fails at once, until None is given."""
        self._refusal_of_all = error

    def lose(self, error: KafkaError) -> None:
        """The next append fails later, and its records are not there."""
        self._loss = error


class Cluster:
    """One broker that leads everything; `topics` maps a name to its settings."""

    def __init__(self, topics: Mapping[str, Mapping[str, str]], offsets_partitions: int = 1) -> None:
        self._topics = dict(topics)
        self._lives = dict.fromkeys(topics, 1)  # how often each topic was created
        self._offsets_partitions = offsets_partitions
        self._counts: dict[str, int] = {}
        self._version = 1
        self.group_settings: dict[str, dict[str, str]] = {}
        self.broker_settings: dict[str, dict[str, str]] = {}

    def image(self) -> ClusterImage:
        images = {
            name: _topic(name, self.id_of(name), self.size_of(name), settings)
            for name, settings in self._topics.items()
        }
        if self._offsets_partitions:
            images[GROUP_OFFSETS_TOPIC] = _topic(GROUP_OFFSETS_TOPIC, topic_id(""), self._offsets_partitions, {})
        return ClusterImage(
            cluster_id="stage",
            controller_id=BROKER_ID,
            brokers={BROKER_ID: BrokerImage(BROKER_ID, "broker.example", 9092, None, 1)},
            topics=images,
            topics_by_id={topic.id: topic for topic in images.values()},
            group_settings=self.group_settings,
            broker_settings=self.broker_settings,
            version=self._version,
        )

    def drop(self, name: str) -> None:
        del self._topics[name]
        self._version += 1

    def create(self, name: str) -> None:
        """Anew, with another id than it may have had before."""
        self._topics[name] = {}
        self._lives[name] = self._lives.get(name, 0) + 1
        self._version += 1

    def grow(self, name: str, partitions: int) -> None:
        self._counts[name] = partitions
        self._version += 1

    def size_of(self, name: str) -> int:
        return self._counts.get(name, 4)

    def id_of(self, name: str) -> uuid.UUID:
        return topic_id(name, self._lives.get(name, 1))

    def make_offsets_topic(self) -> None:
        self._offsets_partitions = 1


def topic_id(name: str, life: int = 1) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {life}")


def _topic(name: str, name_id: uuid.UUID, count: int, settings: Mapping[str, str]) -> TopicImage:
    partitions = tuple(PartitionImage(index, (BROKER_ID,), (BROKER_ID,), BROKER_ID, 0, 0) for index in range(count))
    return TopicImage(name, name_id, partitions, settings)


def subscription(*topics: str) -> bytes:
    """What a consumer joins with: version 0 of Kafka's consumer protocol, no user data."""
    raw = b"\x00\x00" + len(topics).to_bytes(4)
    for name in topics:
        raw += len(name.encode()).to_bytes(2) + name.encode()
    return raw + b"\xff\xff\xff\xff"
