"""ConsumerGroupHeartbeat, ConsumerGroupDescribe, and what the other group APIs say of consumer groups, as bytes."""

import asyncio
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.api.group_room import (
    CONSUMER_DESCRIBE,
    CONSUMER_HEARTBEAT,
    DELETE,
    DESCRIBE,
    LEAVE,
    LIST,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    GroupRoom,
    in_group_room,
)

FIRST: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


async def joined(room: GroupRoom, version: int = 1, **more: Any) -> Message:
    return await room.ask(CONSUMER_HEARTBEAT, version, **(FIRST | more))


def parts(assignment: Message | None) -> list[tuple[Any, list[int]]] | None:
    return None if assignment is None else [(part.topic_id, part.partitions) for part in assignment.topic_partitions]


@pytest.mark.parametrize("version", [0, 1])
def test_first_heartbeat_joins_and_later_ones_hear_only_what_is_new(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        topic_id = room.cluster.id_of("t")
        reply = await joined(room, version)
        assert (reply.error_code, reply.member_id, reply.member_epoch) == (0, "m", 1)
        assert reply.heartbeat_interval_ms == 5_000
        assert parts(reply.assignment) == [(topic_id, [0, 1, 2, 3])]
        quiet = {"group_id": "g", "member_id": "m", "member_epoch": 1, "rebalance_timeout_ms": -1}
        nothing = {"subscribed_topic_names": None, "topic_partitions": None}
        reply = await room.ask(CONSUMER_HEARTBEAT, version, **quiet, **nothing)
        assert (reply.error_code, reply.member_epoch, reply.assignment) == (0, 1, None)
        left = await room.ask(CONSUMER_HEARTBEAT, version, **(quiet | {"member_epoch": -1}), **nothing)
        assert (left.error_code, left.member_id, left.member_epoch) == (0, "m", -1)

    in_group_room(story)


def test_a_group_may_have_times_of_its_own() -> None:
    async def story(room: GroupRoom) -> None:
        room.cluster.group_settings["g"] = {
            "consumer.session.timeout.ms": "2000",
            "consumer.heartbeat.interval.ms": "700",
        }
        assert (await joined(room)).heartbeat_interval_ms == 700
        assert (await joined(room, group_id="others")).heartbeat_interval_ms == 5_000
        await asyncio.sleep(2.1)  # of virtual time
        later = {"member_epoch": 1, "rebalance_timeout_ms": -1}
        assert (await joined(room, **later)).error_code == ErrorCode.unknown_member_id
        assert (await joined(room, group_id="others", **later)).error_code == 0

    in_group_room(story)


def test_member_without_an_id_is_given_one_up_to_version_0_only() -> None:
    async def story(room: GroupRoom) -> None:
        given = await joined(room, 0, member_id="")
        assert (given.error_code, len(given.member_id)) == (0, 36)
        refused = await joined(room, 1, member_id="")
        assert refused.error_code == ErrorCode.invalid_request

    in_group_room(story)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"group_id": " "}, ErrorCode.invalid_request),
        ({"member_id": " "}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
        ({"instance_id": " "}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"rebalance_timeout_ms": -1}, ErrorCode.invalid_request),
        ({"topic_partitions": None}, ErrorCode.invalid_request),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
        ({"member_epoch": -2}, ErrorCode.invalid_request),
        ({"member_epoch": -3}, ErrorCode.invalid_request),
        ({"member_id": "x" * 0x8000}, ErrorCode.invalid_request),
        ({"server_assignor": "best"}, ErrorCode.unsupported_assignor),
        ({"subscribed_topic_regex": "(a+)+"}, ErrorCode.invalid_regular_expression),
        ({"member_epoch": 3}, ErrorCode.group_id_not_found),
        ({"member_epoch": -1}, ErrorCode.group_id_not_found),
    ],
)
def test_heartbeat_that_makes_no_sense_is_refused_with_a_sentence(change: dict[str, Any], code: ErrorCode) -> None:
    async def story(room: GroupRoom) -> None:
        reply = await joined(room, **change)
        assert reply.error_code == code
        assert reply.error_message
        assert (await room.ask(LIST, 5)).groups == []

    in_group_room(story)


@pytest.mark.parametrize("version", [0, 1])
def test_description_has_what_members_have_and_should_have(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        topic_id = room.cluster.id_of("t")
        await joined(room, rack_id="r", instance_id="i")
        await joined(room, member_id="n")
        await room.join(9, member_id="guest")
        asked = {"group_ids": ["g", "none", ""], "include_authorized_operations": True}
        described = await room.ask(CONSUMER_DESCRIBE, version, **asked)
        group, none, nameless = described.groups
        assert nameless.error_code == ErrorCode.invalid_group_id
        assert (none.error_code, none.group_id) == (ErrorCode.group_id_not_found, "none")
        assert none.error_message == "Group none not found."
        facts = (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name)
        assert facts == ("Reconciling", 3, 3, "uniform")
        assert group.authorized_operations == 0b110101001000
        first = group.members[0]
        assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("m", "i", "r", 1)
        assert (first.client_host, first.subscribed_topic_names) == ("/10.0.0.9", ["t"])
        assert first.subscribed_topic_regex == ""
        assert parts(first.assignment) == [(topic_id, [0, 1, 2, 3])]
        assert [part.topic_name for part in first.assignment.topic_partitions] == ["t"]
        assert sum(len(part.partitions) for m in group.members for part in m.target_assignment.topic_partitions) == 4
        if version >= 1:
            assert [member.member_type for member in group.members] == [1, 1, 0]

    in_group_room(story)


def test_other_apis_tell_the_kinds_of_groups_apart() -> None:
    async def story(room: GroupRoom) -> None:
        await room.member(group="old")
        await joined(room)
        listed = (await room.ask(LIST, 5)).groups
        assert {(group.group_id, group.group_type, group.protocol_type) for group in listed} == {
            ("old", "classic", "consumer"),
            ("g", "consumer", "consumer"),
        }
        only = (await room.ask(LIST, 5, types_filter=["Consumer"], states_filter=["stable"])).groups
        assert [group.group_id for group in only] == ["g"]
        assert (await room.ask(DESCRIBE, 5, groups=["g"])).groups[0].group_state == "Dead"
        other = (await room.ask(DESCRIBE, 6, groups=["g"])).groups[0]
        assert other.error_code == ErrorCode.group_id_not_found
        assert other.error_message == "Group g is not a classic group."
        described = (await room.ask(CONSUMER_DESCRIBE, 1, group_ids=["old"])).groups[0]
        assert described.error_code == ErrorCode.group_id_not_found
        assert described.error_message == "Group old is not a consumer group."
        assert (await room.ask(DELETE, 2, groups_names=["g"])).results[0].error_code == ErrorCode.non_empty_group

    in_group_room(story)


async def commit(room: GroupRoom, epoch: int, topic: str = "t", version: int = 9, **more: Any) -> int:
    part = Message(partition_index=0, committed_offset=7, committed_metadata="")
    body = {"group_id": "g", "member_id": "m", "topics": [Message(name=topic, partitions=[part])], **more}
    reply = await room.ask(OFFSET_COMMIT, version, generation_id_or_member_epoch=epoch, **body)
    return int(reply.topics[0].partitions[0].error_code)


def test_offsets_are_committed_fetched_and_deleted_with_the_members_epoch() -> None:
    async def story(room: GroupRoom) -> None:
        await joined(room)
        assert await commit(room, 2) == ErrorCode.stale_member_epoch
        assert await commit(room, 1, member_id="x") == ErrorCode.unknown_member_id
        assert await commit(room, -1, member_id="") == ErrorCode.unknown_member_id
        assert await commit(room, 1) == ErrorCode.none
        assert await commit(room, 1, topic="u") == ErrorCode.none

        async def fetch(member_id: str | None, epoch: int) -> Message:
            asked = Message(group_id="g", member_id=member_id, member_epoch=epoch, topics=None)
            return (await room.ask(OFFSET_FETCH, 9, groups=[asked])).groups[0]

        assert (await fetch("m", 9)).error_code == ErrorCode.stale_member_epoch
        assert (await fetch("x", 1)).error_code == ErrorCode.unknown_member_id
        for member_id, epoch in (("m", 1), (None, -1), ("", -1)):
            found = await fetch(member_id, epoch)
            assert [(topic.name, topic.partitions[0].committed_offset) for topic in found.topics] == [
                ("t", 7),
                ("u", 7),
            ]
        places = [Message(name=name, partitions=[Message(partition_index=0)]) for name in "tu"]
        deleted = await room.ask(OFFSET_DELETE, 0, group_id="g", topics=places)
        codes = [topic.partitions[0].error_code for topic in deleted.topics]
        assert codes == [ErrorCode.group_subscribed_to_topic, ErrorCode.none]

    in_group_room(story)


def test_unknown_assignor_is_refused_in_the_words_that_consumers_show() -> None:
    async def story(room: GroupRoom) -> None:
        refused = await joined(room, server_assignor="best")
        assert refused.error_message == "ServerAssignor best is not supported. Supported assignors: uniform, range."

    in_group_room(story)


def test_only_guests_commit_in_versions_that_do_not_know_consumer_groups() -> None:
    async def story(room: GroupRoom) -> None:
        await joined(room, instance_id="i")
        guest = await room.join(9, member_id="guest")
        for epoch in (1, 9):
            assert await commit(room, epoch, version=8) == ErrorCode.unsupported_version
        assert await commit(room, 1, version=8, member_id="x", group_instance_id="i") == ErrorCode.unknown_member_id
        assert await commit(room, guest.generation_id, version=8, member_id="guest") == ErrorCode.none

    in_group_room(story)


def test_coordinator_that_loads_says_so() -> None:
    async def story(room: GroupRoom) -> None:
        room.start_loading()
        assert (await joined(room)).error_code == ErrorCode.coordinator_load_in_progress
        described = await room.ask(CONSUMER_DESCRIBE, 1, group_ids=["g"])
        assert described.groups[0].error_code == ErrorCode.coordinator_load_in_progress

    in_group_room(story)


def test_an_operator_removes_members_of_a_consumer_group_by_instance_or_member_id() -> None:
    async def story(room: GroupRoom) -> None:
        await joined(room, instance_id="shelf")
        await joined(room, member_id="n", subscribed_topic_names=["u"])
        by_instance = Message(member_id="", group_instance_id="shelf")
        stranger = Message(member_id="", group_instance_id="attic")
        left = await room.ask(LEAVE, 5, group_id="g", members=[by_instance, stranger, by_instance])
        assert [member.error_code for member in left.members] == [0, ErrorCode.unknown_member_id, 0]
        described = (await room.ask(CONSUMER_DESCRIBE, 1, group_ids=["g"])).groups[0]
        assert [member.member_id for member in described.members] == ["n"]
        left = await room.ask(LEAVE, 5, group_id="g", members=[Message(member_id="n", group_instance_id=None)])
        assert [member.error_code for member in left.members] == [0]
        described = (await room.ask(CONSUMER_DESCRIBE, 1, group_ids=["g"])).groups[0]
        assert (described.group_state, described.members) == ("Empty", [])
        gone = {"member_epoch": 2, "rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}
        assert (await joined(room, **gone)).error_code == ErrorCode.unknown_member_id, (
            "it hears that it must join again"
        )

    in_group_room(story)
