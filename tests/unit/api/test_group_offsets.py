"""OffsetCommit, OffsetFetch and OffsetDelete in every version, through real bytes."""

from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.api.group_room import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    GroupRoom,
    in_group_room,
)
from tests.unit.coordinators.stage import topic_id

NOT_A_TOPIC = topic_id("no such topic")


def named(version: int, name: str, **more: Any) -> Message:
    """A topic by name, or by its id from version 10 on."""
    return Message(topic_id=topic_id(name), **more) if version >= 10 else Message(name=name, **more)


async def fetch(room: GroupRoom, version: int, topics: list[Message] | None, group: str = "g") -> Message:
    """The answer for one group, whatever the layout."""
    if version < 8:
        return await room.ask(OFFSET_FETCH, version, group_id=group, topics=topics)
    fetched = await room.ask(OFFSET_FETCH, version, groups=[Message(group_id=group, topics=topics)])
    assert fetched.groups[0].group_id == group
    return fetched.groups[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_is_kept_with_epoch_and_note(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        part = Message(partition_index=1, committed_offset=42, committed_leader_epoch=3, committed_metadata="über")
        bare = Message(partition_index=2, committed_offset=7, committed_metadata=None)
        topic = named(version, "t", partitions=[part, bare])
        committed = await room.ask(OFFSET_COMMIT, version, group_id="g", topics=[topic])
        assert [part.error_code for part in committed.topics[0].partitions] == [0, 0]
        fetched = await fetch(room, 9, None)
        assert fetched.topics[0].name == "t"
        assert [
            (part.partition_index, part.committed_offset, part.committed_leader_epoch, part.metadata)
            for part in fetched.topics[0].partitions
        ] == [(1, 42, 3 if version >= 6 else -1, "über"), (2, 7, -1, "")]

    in_group_room(story)


@pytest.mark.parametrize("version", range(2, 11))
def test_member_commits_in_its_generation_only(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        joined = await room.member()
        for generation, error in ((1, ErrorCode.none), (5, ErrorCode.illegal_generation)):
            topic = named(version, "t", partitions=[Message(partition_index=0, committed_offset=1)])
            committed = await room.ask(
                OFFSET_COMMIT,
                version,
                group_id="g",
                member_id=joined.member_id,
                generation_id_or_member_epoch=generation,
                topics=[topic],
            )
            assert committed.topics[0].partitions[0].error_code == error
        assert await room.commit(9) == ErrorCode.unknown_member_id, "somebody else commits for a group with members"

    in_group_room(story)


@pytest.mark.parametrize("version", range(2, 11))
def test_member_of_no_group_is_told_so_in_the_words_of_its_version(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        topic = named(version, "t", partitions=[Message(partition_index=0, committed_offset=1)])
        body = {"member_id": "m", "generation_id_or_member_epoch": 1, "topics": [topic]}
        gone = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
        for group in ("nobody", ""):
            committed = await room.ask(OFFSET_COMMIT, version, group_id=group, **body)
            assert committed.topics[0].partitions[0].error_code == gone

    in_group_room(story)


@pytest.mark.parametrize("version", range(2, 11))
def test_part_of_a_commit_can_be_refused(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        long = Message(partition_index=0, committed_offset=1, committed_metadata="x" * 4097)
        fits = Message(partition_index=1, committed_offset=1, committed_metadata="x" * 4096)
        absent = Message(partition_index=4, committed_offset=1)
        topics = [
            named(version, "t", partitions=[long, fits, absent]),
            named(version, "no such topic", partitions=[Message(partition_index=0, committed_offset=1)]),
        ]
        committed = await room.ask(OFFSET_COMMIT, version, group_id="g", topics=topics)
        assert [[part.error_code for part in topic.partitions] for topic in committed.topics] == [
            [ErrorCode.offset_metadata_too_large, ErrorCode.none, ErrorCode.unknown_topic_or_partition],
            [ErrorCode.unknown_topic_id if version >= 10 else ErrorCode.unknown_topic_or_partition],
        ]
        if version >= 10:
            assert [topic.topic_id for topic in committed.topics] == [topic_id("t"), NOT_A_TOPIC]

    in_group_room(story)


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_answers_minus_one_for_what_was_never_committed(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        await room.commit(42, partition=1)
        fetched = await fetch(room, version, [named(version, "t", partition_indexes=[0, 1])])
        assert [(part.committed_offset, part.metadata, part.error_code) for part in fetched.topics[0].partitions] == [
            (-1, "", 0),
            (42, "note", 0),
        ]
        unknown = await fetch(room, version, [named(version, "t", partition_indexes=[0])], group="nobody")
        assert [part.committed_offset for part in unknown.topics[0].partitions] == [-1]
        assert unknown.error_code == 0

    in_group_room(story)


@pytest.mark.parametrize("version", range(2, 11))
def test_fetch_of_all_topics(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        await room.commit(1, topic="t")
        await room.commit(2, topic="u", partition=3)
        fetched = await fetch(room, version, None)
        names = [topic.topic_id if version >= 10 else topic.name for topic in fetched.topics]
        assert names == ([topic_id("t"), topic_id("u")] if version >= 10 else ["t", "u"])
        offsets = [
            (part.partition_index, part.committed_offset) for topic in fetched.topics for part in topic.partitions
        ]
        assert offsets == [(0, 1), (3, 2)]
        assert (await fetch(room, version, None, group="nobody")).topics == []

    in_group_room(story)


def test_fetch_by_an_unknown_id_says_so() -> None:
    async def story(room: GroupRoom) -> None:
        fetched = await fetch(room, 10, [named(10, "no such topic", partition_indexes=[0])])
        assert fetched.topics[0].topic_id == NOT_A_TOPIC
        assert [(part.committed_offset, part.error_code) for part in fetched.topics[0].partitions] == [
            (-1, ErrorCode.unknown_topic_id)
        ]

    in_group_room(story)


@pytest.mark.parametrize("version", range(8, 11))
def test_many_groups_are_fetched_at_once(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        await room.commit(1, group="g")
        await room.commit(2, group="h")
        groups = [Message(group_id=name, topics=None) for name in ("h", "g", "nobody")]
        fetched = await room.ask(OFFSET_FETCH, version, groups=groups, require_stable=True)
        assert [
            (group.group_id, [part.committed_offset for topic in group.topics for part in topic.partitions])
            for group in fetched.groups
        ] == [("h", [2]), ("g", [1]), ("nobody", [])]

    in_group_room(story)


@pytest.mark.parametrize("version", range(1, 11))
def test_committed_offset_is_never_hidden_by_a_load(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        await room.commit(42)
        room.start_loading()
        fetched = await fetch(room, version, [named(version, "t", partition_indexes=[0])])
        if version < 2:
            assert [part.error_code for part in fetched.topics[0].partitions] == [
                ErrorCode.coordinator_load_in_progress
            ]
        else:
            assert fetched.error_code == ErrorCode.coordinator_load_in_progress
            assert fetched.topics == []
        assert await room.commit(43) == ErrorCode.coordinator_load_in_progress

    in_group_room(story)


async def delete(room: GroupRoom, group: str, *places: tuple[str, int]) -> Message:
    topics = [Message(name=name, partitions=[Message(partition_index=index)]) for name, index in places]
    return await room.ask(OFFSET_DELETE, 0, group_id=group, topics=topics)


def test_offsets_of_topics_that_nobody_subscribes_to_are_deleted() -> None:
    async def story(room: GroupRoom) -> None:
        await room.commit(1, topic="t")
        await room.commit(1, topic="u")
        await room.member()  # subscribes to t
        deleted = await delete(room, "g", ("t", 0), ("u", 0), ("no such topic", 0), ("u", 4))
        assert [topic.partitions[0].error_code for topic in deleted.topics] == [
            ErrorCode.group_subscribed_to_topic,
            ErrorCode.none,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert [topic.name for topic in (await fetch(room, 9, None)).topics] == ["t"]

    in_group_room(story)


@pytest.mark.parametrize("place", [("t", 0), ("t", 4), ("no such topic", 0)])
def test_offsets_of_unknown_and_of_other_kinds_of_groups_are_not_deleted(place: tuple[str, int]) -> None:
    async def story(room: GroupRoom) -> None:
        assert (await delete(room, "", place)).error_code == ErrorCode.invalid_group_id
        assert (await delete(room, "nobody", place)).error_code == ErrorCode.group_id_not_found
        await room.member(protocol_type="connect")
        assert (await delete(room, "g", place)).error_code == ErrorCode.non_empty_group

    in_group_room(story)


@pytest.mark.parametrize("version", range(6))
def test_old_producers_do_not_hear_of_a_load(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        room.start_loading()
        topic = Message(name="t", partitions=[Message(partition_index=0, committed_offset=1, committed_metadata="")])
        asked = {"transactional_id": "x", "group_id": "g", "producer_id": 1, "producer_epoch": 0, "topics": [topic]}
        sent = await room.ask(TXN_OFFSET_COMMIT, version, **asked)
        told = ErrorCode.coordinator_load_in_progress if version >= 2 else ErrorCode.coordinator_not_available
        assert sent.topics[0].partitions[0].error_code == told

    in_group_room(story)
