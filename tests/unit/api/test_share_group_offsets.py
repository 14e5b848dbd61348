"""Describing, altering and deleting the start offsets of share groups, through the handlers and real bytes."""

import asyncio

from msgspec.structs import replace

from headrace.model.share_state import SharePartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from tests.unit.api.group_room import (
    ALTER_SHARE_OFFSETS,
    DELETE_SHARE_OFFSETS,
    END,
    SHARE_OFFSETS,
    GroupRoom,
    in_group_room,
)

NOT_FOUND, UNKNOWN = ErrorCode.group_id_not_found, ErrorCode.unknown_topic_or_partition


async def empty_group(room: GroupRoom) -> None:
    await room.share()
    await room.share(epoch=-1)


def done(room: GroupRoom, partition: int, start: int, count: int) -> None:
    """As if members had worked: so many records behind the start are done with."""
    place = SharePartition("s", room.cluster.id_of("t"), partition)
    known = room.states.states[place]
    room.states.states[place] = replace(known, start_offset=start, leader_epoch=3, delivery_complete_count=count)


async def offsets(room: GroupRoom, *asked: tuple[str, list[int]], version: int = 1, group: str = "s") -> Message:
    topics = [Message(topic_name=name, partitions=indexes) for name, indexes in asked] or None
    (found,) = (await room.ask(SHARE_OFFSETS, version, groups=[Message(group_id=group, topics=topics)])).groups
    return found


async def seek(room: GroupRoom, *starts: tuple[str, int, int], group: str = "s") -> Message:
    topics = [
        Message(topic_name=name, partitions=[Message(partition_index=index, start_offset=start)])
        for name, index, start in starts
    ]
    return await room.ask(ALTER_SHARE_OFFSETS, 0, group_id=group, topics=topics)


async def forget(room: GroupRoom, *names: str, group: str = "s") -> Message:
    return await room.ask(DELETE_SHARE_OFFSETS, 0, group_id=group, topics=[Message(topic_name=name) for name in names])


def rows(group: Message) -> list[tuple[str, int, int, int]]:
    return [
        (topic.topic_name, part.partition_index, part.start_offset, part.lag)
        for topic in group.topics
        for part in topic.partitions
    ]


def test_everything_that_a_group_has_is_described_with_its_lag() -> None:
    async def story(room: GroupRoom) -> None:
        await room.share()
        done(room, 1, 40, 5)
        done(room, 2, 40, -1)
        found = await offsets(room)
        assert rows(found) == [("t", 0, -1, -1), ("t", 1, 40, END - 45), ("t", 2, 40, -1), ("t", 3, -1, -1)]
        assert found.topics[0].topic_id == room.cluster.id_of("t")
        assert found.topics[0].partitions[1].leader_epoch == 3
        assert [part.start_offset for part in (await offsets(room, version=0)).topics[0].partitions] == [-1, 40, 40, -1]

    in_group_room(story)


def test_what_has_no_state_has_no_start_and_is_no_error() -> None:
    async def story(room: GroupRoom) -> None:
        await room.share()
        found = await offsets(room, ("t", [0, 9]), ("u", [0]), ("nothing", [0]))
        assert rows(found) == [("t", 0, -1, -1), ("t", 9, -1, -1), ("u", 0, -1, -1), ("nothing", 0, -1, -1)]
        assert {part.error_code for topic in found.topics for part in topic.partitions} == {0}
        room.states.refusal = KafkaError(ErrorCode.coordinator_not_available)
        assert rows(await offsets(room, ("t", [0]))) == [("t", 0, -1, -1)]

    in_group_room(story)


def test_a_lost_leader_is_an_error_of_its_partitions() -> None:
    async def story(room: GroupRoom) -> None:
        await room.share()
        done(room, 1, 40, 0)
        room.ends.lost = ("t",)
        found = await offsets(room, ("t", [0, 1]))
        assert [part.error_code for part in found.topics[0].partitions] == [0, ErrorCode.leader_not_available]

    in_group_room(story)


def test_all_offsets_of_no_share_group_are_an_error() -> None:
    async def story(room: GroupRoom) -> None:
        await room.member(group="classic")
        assert (await offsets(room, group="classic")).error_code == NOT_FOUND
        assert (await offsets(room, group="nobody")).error_code == NOT_FOUND
        assert (await offsets(room, group="")).error_code == ErrorCode.invalid_group_id

    in_group_room(story)


def test_start_offsets_are_set_while_the_group_is_empty() -> None:
    async def story(room: GroupRoom) -> None:
        await room.share()
        assert (await seek(room, ("t", 0, 7))).error_code == ErrorCode.non_empty_group
        await room.share(epoch=-1)
        done(room, 0, 40, 5)
        before = room.states.states[SharePartition("s", room.cluster.id_of("t"), 0)].state_epoch
        answer = await seek(room, ("t", 0, 7), ("u", 1, 0), ("t", 9, 1), ("nothing", 0, 1), ("t", 1, -5))
        codes = {
            (topic.topic_name, part.partition_index): part.error_code
            for topic in answer.responses
            for part in topic.partitions
        }
        assert codes == {
            ("t", 0): 0, ("u", 1): 0, ("t", 9): UNKNOWN, ("nothing", 0): UNKNOWN,
            ("t", 1): ErrorCode.invalid_request,
        }  # fmt: skip
        state = room.states.states[SharePartition("s", room.cluster.id_of("t"), 0)]
        assert (state.start_offset, state.state_epoch > before) == (7, True)
        assert ("u", 1, 0, -1) in rows(await offsets(room))
        joined = await room.share(subscribed_topic_names=["t", "u"])
        assert sorted(len(part.partitions) for part in joined.assignment.topic_partitions) == [1, 4]
        assert ("t", 0, 7, -1) in rows(await offsets(room))
        await asyncio.sleep(0.01)
        assert len(rows(await offsets(room))) == 8  # the other partitions of u begin at 0: the group knows the topic

    in_group_room(story)


def test_a_refused_seek_is_told_and_changes_nothing() -> None:
    async def story(room: GroupRoom) -> None:
        await empty_group(room)
        assert (await seek(room, ("t", 0, 7), group="nobody")).error_code == NOT_FOUND
        room.states.refusal = KafkaError(ErrorCode.coordinator_not_available, "try again")
        answer = await seek(room, ("u", 0, 7))
        (part,) = answer.responses[0].partitions
        assert (part.error_code, part.error_message) == (ErrorCode.coordinator_not_available, "try again")
        room.states.refusal = None
        assert {name for name, _, _, _ in rows(await offsets(room))} == {"t"}

    in_group_room(story)


def test_offsets_of_topics_are_deleted() -> None:
    async def story(room: GroupRoom) -> None:
        await room.share()
        assert (await forget(room, "t")).error_code == ErrorCode.non_empty_group
        await room.share(epoch=-1)
        assert (await forget(room, "t", group="nobody")).error_code == NOT_FOUND
        answer = await forget(room, "t", "u", "nothing")
        assert [(topic.topic_name, topic.error_code) for topic in answer.responses] == [
            ("t", 0), ("u", UNKNOWN), ("nothing", UNKNOWN),
        ]  # fmt: skip
        assert answer.responses[1].error_message == "There is no offset information to delete."
        assert room.states.states == {}
        assert rows(await offsets(room)) == []
        assert (await room.share()).assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
        assert {state.start_offset for state in room.states.states.values()} == {-1}

    in_group_room(story)


def test_a_deletion_that_failed_is_finished_by_asking_again() -> None:
    async def story(room: GroupRoom) -> None:
        await empty_group(room)
        room.states.refusal = KafkaError(ErrorCode.coordinator_not_available)
        answer = await forget(room, "t")
        assert [topic.error_code for topic in answer.responses] == [ErrorCode.coordinator_not_available]
        room.states.refusal = None
        assert [topic.error_code for topic in (await forget(room, "t")).responses] == [0]
        assert room.states.states == {}

    in_group_room(story)
