"""Views as aiokafka makes and reads them: topics that are created with settings."""

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import InvalidTopicError
from aiokafka.structs import ConsumerRecord

from tests.clients.aio.clients import Clients, produce, until
from tests.clients.own_features import TAG, TAGGED, VIEWS
from tests.clients.stories import story

INVALID_CONFIG = 40


async def view_answer(clients: Clients, name: str, base: str, tags: str, match: str) -> int:
    """The error code of the answer to the creation of a view."""
    settings = {"headrace.view.of": base, "headrace.view.tags": tags, "headrace.view.match": match}
    # This client does not let the broker choose the counts (-1).
    answer = await (await clients.admin()).create_topics([NewTopic(name, 1, 1, topic_configs=settings)])
    code: int = answer.topic_errors[0][1]
    return code


async def new_view(clients: Clients, base: str, tags: str, match: str) -> str:
    view = clients.unique("view")
    assert await view_answer(clients, view, base, tags, match) == 0

    async def known() -> bool:
        admin = await clients.admin()
        return len((await admin.describe_topics([view]))[0]["partitions"]) == 1

    await until(f"{view} is known", known)
    return view


async def read_to_the_end(consumer: AIOKafkaConsumer, topic: str, end: int) -> list[ConsumerRecord]:
    """A member reads up to the end, and commits it."""
    records: list[ConsumerRecord] = []
    place = TopicPartition(topic, 0)

    async def at_the_end() -> bool:
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            records.extend(batch)
        return bool(consumer.assignment() and await consumer.position(place) == end)

    await until("the position is the end", at_the_end)
    assert (await consumer.end_offsets([place]))[place] == end
    await consumer.commit()
    assert await consumer.committed(place) == end
    return records


@story("views")
async def test_groups_read_the_records_of_a_view_at_the_offsets_of_its_base(clients: Clients) -> None:
    base = await clients.topic(headrace_tags_enable="true")
    producer = await clients.producer(compression_type="zstd", linger_ms=50)
    sent = [
        await producer.send(base, value, partition=0, headers=[(TAG, tag) for tag in tags]) for value, tags in TAGGED
    ]
    for future in sent:
        await future
    for tags, match, numbers in VIEWS:
        view = await new_view(clients, base, tags, match)
        records = await read_to_the_end(await clients.consumer(view), view, len(TAGGED))
        found = [(record.topic, record.offset, record.value) for record in records]
        assert found == [(view, number, b"%d" % number) for number in numbers]
        with pytest.raises(InvalidTopicError):
            await produce(producer, view, [b"refused"], partition=0)


@story("views")
async def test_a_view_of_a_view_or_of_a_topic_without_tags_is_refused(clients: Clients) -> None:
    view = await new_view(clients, await clients.topic(headrace_tags_enable="true"), "red", "any")
    for base in (view, await clients.topic()):
        assert await view_answer(clients, clients.unique("refused"), base, "red", "any") == INVALID_CONFIG


@story("view-transactions")
async def test_readers_of_committed_records_get_them_from_a_view_too(clients: Clients) -> None:
    base = await clients.topic(headrace_tags_enable="true")
    view = await new_view(clients, base, "red", "any")
    producer = await clients.producer(transactional_id=clients.unique("id"))
    for value in (b"kept", b"lost"):
        await producer.begin_transaction()
        await produce(producer, base, [value, value], partition=0, headers=[(TAG, b"red")])
        await produce(producer, base, [b"green"], partition=0, headers=[(TAG, b"green")])
        await (producer.commit_transaction() if value == b"kept" else producer.abort_transaction())
    # Three records and a marker each.
    careful = await read_to_the_end(await clients.consumer(view, isolation_level="read_committed"), view, 8)
    assert [record.value for record in careful] == [b"kept"] * 2
    hasty = await read_to_the_end(await clients.consumer(view, isolation_level="read_uncommitted"), view, 8)
    assert [record.value for record in hasty] == [b"kept"] * 2 + [b"lost"] * 2
