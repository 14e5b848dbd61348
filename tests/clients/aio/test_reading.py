"""Where an aiokafka consumer reads: seeks, times, watermarks, pauses, and topics that go away under it."""

import time

from aiokafka import TopicPartition

from tests.clients.aio.clients import Clients, produce, read, read_partition, until
from tests.clients.stories import story


@story("seek")
async def test_seek_to_start_end_and_offset(clients: Clients) -> None:
    topic = await clients.topic()
    producer = await clients.producer()
    await produce(producer, topic, [b"%d" % number for number in range(10)])
    consumer, place = await clients.consumer(), TopicPartition(topic, 0)
    assert [record.offset for record in await read_partition(consumer, topic, 3, offset=7)] == [7, 8, 9]
    await consumer.seek_to_beginning(place)
    assert (await read(consumer, 1))[0].offset == 0
    consumer.seek(place, 4)
    assert (await read(consumer, 1))[0].offset == 4
    assert await consumer.position(place) == 5
    await consumer.seek_to_end(place)
    assert await consumer.position(place) == 10
    assert await consumer.getmany(timeout_ms=300) == {}
    await produce(producer, topic, [b"new"])
    assert (await read(consumer, 1))[0].value == b"new"


@story("seek")
async def test_offset_out_of_range_is_reset_as_asked(clients: Clients) -> None:
    topic = await clients.topic()
    await produce(await clients.producer(), topic, [b"first"])
    assert (await read_partition(await clients.consumer(), topic, 1, offset=1000))[0].value == b"first"


@story("seek-by-time")
async def test_offsets_for_times_are_the_first_at_or_after(clients: Clients) -> None:
    topic = await clients.topic()
    producer, place = await clients.producer(), TopicPartition(topic, 0)
    start_ms = int(time.time() * 1000) - 3_600_000
    for number in range(10):
        await produce(producer, topic, [b"%d" % number], timestamp_ms=start_ms + number * 1000)
    consumer = await clients.consumer()

    async def found(stamp_ms: int) -> tuple[int, int] | None:
        hit = (await consumer.offsets_for_times({place: stamp_ms}))[place]
        return None if hit is None else (hit.offset, hit.timestamp)

    assert await found(start_ms - 5) == (0, start_ms)
    assert await found(start_ms + 3000) == (3, start_ms + 3000)
    assert await found(start_ms + 3001) == (4, start_ms + 4000)
    assert await found(start_ms + 60_000) is None
    assert (await read_partition(consumer, topic, 1, offset=6))[0].timestamp == start_ms + 6000


@story("pause")
async def test_paused_partition_is_silent_until_resumed(clients: Clients) -> None:
    topic = await clients.topic(partitions=2)
    producer, consumer = await clients.producer(), await clients.consumer()
    consumer.assign([TopicPartition(topic, partition) for partition in range(2)])
    consumer.pause(TopicPartition(topic, 0))
    for partition in range(2):
        await produce(producer, topic, [b"%d" % partition], partition=partition)
    assert [record.value for record in await read(consumer, 1)] == [b"1"]
    assert await consumer.getmany(timeout_ms=300) == {}
    consumer.resume(TopicPartition(topic, 0))
    assert [record.value for record in await read(consumer, 1)] == [b"0"]


@story("watermarks")
async def test_watermarks_are_first_and_next_offset(clients: Clients) -> None:
    topic = await clients.topic()
    consumer, place = await clients.consumer(), TopicPartition(topic, 0)
    assert await consumer.beginning_offsets([place]) == {place: 0} == await consumer.end_offsets([place])
    await produce(await clients.producer(), topic, [b"a", b"b", b"c"])
    assert await consumer.beginning_offsets([place]) == {place: 0}
    assert await consumer.end_offsets([place]) == {place: 3}
    await read_partition(consumer, topic, 3)
    assert (consumer.highwater(place), consumer.last_stable_offset(place)) == (3, 3)


@story("recreated-topic")
async def test_live_consumer_reads_a_topic_made_again(clients: Clients) -> None:
    topic = await clients.topic()
    producer = await clients.producer()
    await produce(producer, topic, [b"old"] * 5)
    await producer.stop()
    consumer = await clients.consumer()
    await read_partition(consumer, topic, 5)
    admin = await clients.admin()
    await admin.delete_topics([topic])
    # This client asks for its topics with auto-creation on, so the topic may come back before it is made again here.
    await until("the topic is there again", lambda: made_again(clients, topic))
    await produce(await clients.producer(), topic, [b"new"])
    assert (await read(consumer, 1))[0].value == b"new"


async def made_again(clients: Clients, topic: str) -> bool:
    try:
        await clients.topic(name=topic)
    except AssertionError:
        admin = await clients.admin()
        return topic in await admin.list_topics()
    return True
