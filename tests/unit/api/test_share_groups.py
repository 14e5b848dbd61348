"""Share groups through the handlers and real bytes: membership, descriptions, and what other APIs say of them."""

import asyncio

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.api.group_room import (
    CONSUMER_DESCRIBE,
    CONSUMER_HEARTBEAT,
    DELETE,
    DESCRIBE,
    HEARTBEAT,
    LIST,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SHARE_DESCRIBE,
    SYNC,
    TXN_OFFSET_COMMIT,
    GroupRoom,
    in_group_room,
)

NOT_FOUND = ErrorCode.group_id_not_found


def parts_of(answer: Message) -> list[list[int]] | None:
    return None if answer.assignment is None else [part.partitions for part in answer.assignment.topic_partitions]


def test_a_member_joins_stays_and_leaves() -> None:
    async def story(room: GroupRoom) -> None:
        joined = await room.share(rack_id="r")
        assert (joined.error_code, joined.member_id, joined.heartbeat_interval_ms) == (0, "m", 5_000)
        assert parts_of(joined) == [[0, 1, 2, 3]]
        assert joined.assignment.topic_partitions[0].topic_id == room.cluster.id_of("t")
        again = await room.share(epoch=joined.member_epoch)
        assert (again.error_code, again.member_epoch, again.assignment) == (0, joined.member_epoch, None)
        left = await room.share(epoch=-1)
        assert (left.error_code, left.member_epoch) == (0, -1)
        gone = await room.share(epoch=joined.member_epoch)
        assert gone.error_code == ErrorCode.unknown_member_id

    in_group_room(story)


@pytest.mark.parametrize(
    ("member_id", "epoch", "group", "more", "error"),
    [
        pytest.param("", 0, "s", {}, ErrorCode.invalid_request, id="no-member-id"),
        pytest.param("m", 0, "", {}, ErrorCode.invalid_request, id="no-group"),
        pytest.param("m", 0, "s", {"rack_id": " "}, ErrorCode.invalid_request, id="blank-rack"),
        pytest.param("m", 0, "s", {"subscribed_topic_names": []}, ErrorCode.invalid_request, id="no-topics"),
        pytest.param("m", 0, "s", {"subscribed_topic_names": None}, ErrorCode.invalid_request, id="null-topics"),
        pytest.param("m", -2, "s", {}, ErrorCode.invalid_request, id="epoch-below-minus-one"),
        pytest.param("m" * 40_000, 0, "s", {}, ErrorCode.invalid_request, id="endless-name"),
        pytest.param("m", 3, "s", {}, NOT_FOUND, id="no-such-group"),
        pytest.param("m", -1, "s", {}, NOT_FOUND, id="leave-no-such-group"),
        pytest.param(
            "m", 0, "s", {"subscribed_topic_names": ["x" * 30] * 60_000}, ErrorCode.group_max_size_reached, id="topics"
        ),
    ],
)
def test_bad_heartbeats_get_an_error_and_words(
    member_id: str, epoch: int, group: str, more: dict[str, object], error: ErrorCode
) -> None:
    async def story(room: GroupRoom) -> None:
        answer = await room.share(member_id, epoch, group, **more)
        assert answer.error_code == error
        assert answer.error_message
        assert (await room.ask(LIST, 5)).groups == []

    in_group_room(story)


def test_a_group_has_two_hundred_members_at_most() -> None:
    async def story(room: GroupRoom) -> None:
        for number in range(200):
            assert (await room.share(f"m{number}")).error_code == 0
        assert (await room.share("one more")).error_code == ErrorCode.group_max_size_reached
        assert (await room.share("m7")).error_code == 0

    in_group_room(story)


def test_a_group_may_have_times_of_its_own_within_the_limits_of_the_broker() -> None:
    async def story(room: GroupRoom) -> None:
        room.cluster.group_settings["s"] = {
            "share.heartbeat.interval.ms": "7000",
            "share.session.timeout.ms": "3600000",  # as if the broker had once allowed it: 60 s
        }
        assert (await room.share()).heartbeat_interval_ms == 7_000
        await asyncio.sleep(59)
        assert len((await room.ask(SHARE_DESCRIBE, 1, group_ids=["s"])).groups[0].members) == 1
        await asyncio.sleep(2)
        assert (await room.ask(SHARE_DESCRIBE, 1, group_ids=["s"])).groups[0].group_state == "Empty"

    in_group_room(story)


def test_a_group_is_described() -> None:
    async def story(room: GroupRoom) -> None:
        joined = await room.share(rack_id="r", subscribed_topic_names=["u", "t", "t"])
        (group,) = (await room.ask(SHARE_DESCRIBE, 1, group_ids=["s", "s"], include_authorized_operations=True)).groups
        assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
        assert (group.group_epoch, group.assignment_epoch) == (joined.member_epoch, joined.member_epoch)
        assert group.authorized_operations != -(2**31)
        (member,) = group.members
        assert (member.member_id, member.rack_id, member.client_id) == ("m", "r", "test")
        assert (member.client_host, member.member_epoch) == ("/10.0.0.9", joined.member_epoch)
        assert member.subscribed_topic_names == ["t", "u"]
        assert {part.topic_name: part.partitions for part in member.assignment.topic_partitions} == {
            "t": [0, 1, 2, 3],
            "u": [0, 1, 2, 3],
        }

    in_group_room(story)


def test_a_group_that_is_none_is_not_described() -> None:
    async def story(room: GroupRoom) -> None:
        await room.member(group="classic")
        groups = (await room.ask(SHARE_DESCRIBE, 1, group_ids=["nobody", "classic", ""])).groups
        assert [(group.error_code, group.error_message) for group in groups] == [
            (NOT_FOUND, "Group nobody not found."),
            (NOT_FOUND, "Group classic is not a share group."),
            (ErrorCode.invalid_group_id, "GroupId can't be empty."),
        ]
        assert (await room.share(group="classic")).error_code == NOT_FOUND
        await room.commit(1, group="simple")
        assert (await room.share(group="simple")).error_code == NOT_FOUND

    in_group_room(story)


def test_a_group_is_listed_by_type_and_state() -> None:
    async def story(room: GroupRoom) -> None:
        await room.share()
        await room.member(group="classic")
        (group,) = (await room.ask(LIST, 5, types_filter=["Share"])).groups
        assert (group.group_id, group.protocol_type, group.group_state, group.group_type) == (
            "s", "share", "Stable", "share",
        )  # fmt: skip
        await room.share(epoch=-1)
        assert [group.group_id for group in (await room.ask(LIST, 5, states_filter=["empty"])).groups] == ["s"]
        assert len((await room.ask(LIST, 4)).groups) == 2

    in_group_room(story)


def test_other_protocols_are_refused_as_kafka_does() -> None:
    async def story(room: GroupRoom) -> None:
        await room.share()
        assert (await room.join(9, "s")).error_code == ErrorCode.inconsistent_group_protocol
        unknown = ErrorCode.unknown_member_id
        assert (
            await room.ask(SYNC, 4, group_id="s", member_id="m", generation_id=1, assignments=[])
        ).error_code == unknown
        assert (await room.ask(HEARTBEAT, 4, group_id="s", member_id="m", generation_id=1)).error_code == unknown
        assert await room.commit(1, group="s") == NOT_FOUND
        (fetched,) = (await room.ask(OFFSET_FETCH, 8, groups=[Message(group_id="s", topics=None)])).groups
        assert fetched.error_code == NOT_FOUND
        deleted = [Message(name="t", partitions=[Message(partition_index=0)])]
        assert (await room.ask(OFFSET_DELETE, 0, group_id="s", topics=deleted)).error_code == NOT_FOUND
        (described,) = (await room.ask(DESCRIBE, 6, groups=["s"])).groups
        assert (described.error_code, described.group_state) == (NOT_FOUND, "Dead")
        (described,) = (await room.ask(CONSUMER_DESCRIBE, 1, group_ids=["s"])).groups
        assert (described.error_code, described.error_message) == (NOT_FOUND, "Group s is not a consumer group.")
        beat = await room.ask(
            CONSUMER_HEARTBEAT, 1, group_id="s", member_id="x", member_epoch=0, rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        assert (beat.error_code, beat.error_message) == (NOT_FOUND, "Group s is not a consumer group.")
        part = Message(partition_index=0, committed_offset=1)
        in_transaction = await room.ask(
            TXN_OFFSET_COMMIT, 3, transactional_id="x", group_id="s", producer_id=1, producer_epoch=0,
            topics=[Message(name="t", partitions=[part])],
        )  # fmt: skip
        assert in_transaction.topics[0].partitions[0].error_code == NOT_FOUND
        member = await room.ask(
            OFFSET_COMMIT, 9, group_id="s", member_id="m", generation_id_or_member_epoch=1,
            topics=[Message(name="t", partitions=[part])],
        )  # fmt: skip
        assert member.topics[0].partitions[0].error_code == NOT_FOUND

    in_group_room(story)


def test_a_group_is_deleted_with_its_states() -> None:
    async def story(room: GroupRoom) -> None:
        async def delete() -> list[int]:
            return [result.error_code for result in (await room.ask(DELETE, 2, groups_names=["s", "nobody"])).results]

        await room.share()
        assert len(room.states.states) == 4
        assert await delete() == [ErrorCode.non_empty_group, NOT_FOUND]
        await room.share(epoch=-1)
        assert await delete() == [0, NOT_FOUND]
        assert room.states.states == {}
        assert (await room.ask(LIST, 5)).groups == []
        assert (await room.share()).member_epoch == 2

    in_group_room(story)


def test_a_loading_coordinator_says_so() -> None:
    async def story(room: GroupRoom) -> None:
        room.start_loading()
        assert (await room.share()).error_code == ErrorCode.coordinator_load_in_progress
        (group,) = (await room.ask(SHARE_DESCRIBE, 1, group_ids=["s"])).groups
        assert group.error_code == ErrorCode.coordinator_load_in_progress

    in_group_room(story)


def test_a_member_that_asks_again_while_it_waits_gets_both_answers() -> None:
    async def story(room: GroupRoom) -> None:
        room.states.hold()
        first = asyncio.ensure_future(room.share())
        await asyncio.sleep(1)
        second = asyncio.ensure_future(room.share("m", 0))
        await asyncio.sleep(0.1)
        assert parts_of(await first) == []
        third = asyncio.ensure_future(room.share("other"))
        room.states.release()
        assert parts_of(await third) is not None
        assert parts_of(await second) is not None

    in_group_room(story)
