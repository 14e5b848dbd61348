"""An aiokafka consumer on topics whose offsets do not all have a record: it reads on, and its lag becomes 0."""

from aiokafka import TopicPartition

from tests.clients.aio.clients import Clients, produce, read, read_partition, until
from tests.clients.stories import story

COUNT = 40
COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "100", "min_cleanable_dirty_ratio": "0"}


async def reads_to_the_end(clients: Clients, topic: str, newest: bytes) -> None:
    """A consumer from the start comes to the end without an error, and to what is produced after that."""
    consumer, place = await clients.consumer(), TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    values: list[bytes | None] = []

    async def at_the_end() -> bool:
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            values.extend(record.value for record in batch)
        return bool(await consumer.position(place) == COUNT)

    await until("the position is the end", at_the_end)
    assert values[-1] == newest
    await consumer.commit()
    assert await consumer.committed(place) == COUNT == (await consumer.end_offsets([place]))[place]
    await produce(await clients.producer(), topic, [b"after"], key=b"another")
    assert (await read(consumer, 1))[0].value == b"after"


@story("dropped-records")
async def test_single_duplicates_are_read_past(clients: Clients) -> None:
    topic = await clients.topic(headrace_dedup_window_ms="600000")
    producer = await clients.producer()
    for _ in range(COUNT):
        await produce(producer, topic, [b"same"], headers=[("headrace.id", b"same")])
    await reads_to_the_end(clients, topic, b"same")


@story("dropped-records")
async def test_compacted_segments_are_read_past(clients: Clients) -> None:
    topic = await clients.topic(**COMPACTED)
    producer = await clients.producer()
    for number in range(COUNT):
        await produce(producer, topic, [b"%d" % number], key=b"k")

    async def compacted() -> bool:
        first = (await read_partition(await clients.consumer(), topic, 1))[0].offset
        return bool(first == COUNT - 2)

    await until("it is compacted", compacted)
    await reads_to_the_end(clients, topic, b"%d" % (COUNT - 1))
