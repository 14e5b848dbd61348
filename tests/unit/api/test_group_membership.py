"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in every version, through real bytes."""

import asyncio

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.unit.api.group_room import HEARTBEAT, JOIN, LEAVE, SYNC, GroupRoom, in_group_room
from tests.unit.coordinators.stage import subscription


@pytest.mark.parametrize("version", range(10))
def test_join_makes_a_leader_who_is_told_all_members(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        joined = await room.join(version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.leader == joined.member_id
        assert joined.member_id.startswith("test-")
        assert [(member.member_id, member.metadata) for member in joined.members] == [
            (joined.member_id, subscription("t"))
        ]
        assert joined.protocol_type == ("consumer" if version >= 7 else None)

    in_group_room(story)


@pytest.mark.parametrize("version", range(10))
def test_member_id_is_required_from_version_four_on(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        first = await room.ask(
            JOIN,
            version,
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[Message(name="range", metadata=b"")],
        )
        wanted = ErrorCode.member_id_required if version >= 4 else ErrorCode.none
        assert first.error_code == wanted
        assert first.member_id

    in_group_room(story)


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize(
    ("group", "more", "error"),
    [
        pytest.param("", {}, ErrorCode.invalid_group_id, id="no-group"),
        pytest.param("g", {"session_timeout_ms": 5}, ErrorCode.invalid_session_timeout, id="short-session"),
        pytest.param("g", {"protocols": []}, ErrorCode.inconsistent_group_protocol, id="no-protocols"),
        pytest.param("g", {"member_id": "who"}, ErrorCode.unknown_member_id, id="unknown-member"),
    ],
)
def test_join_is_refused_with_the_reason(version: int, group: str, more: dict[str, object], error: ErrorCode) -> None:
    async def story(room: GroupRoom) -> None:
        refused = await room.join(version, group, **more)  # type: ignore[arg-type]
        assert refused.error_code == error
        assert refused.protocol_name == (None if version >= 7 else "")
        assert refused.members == []

    in_group_room(story)


def test_rebalance_timeout_of_version_zero_is_the_session_timeout() -> None:
    async def story(room: GroupRoom) -> None:
        await room.member(version=0)
        late = asyncio.ensure_future(room.join(0, session_timeout_ms=30_000))
        await asyncio.sleep(9)
        assert not late.done()
        await asyncio.sleep(2)
        assert (await late).generation_id == 2

    in_group_room(story)


@pytest.mark.parametrize("version", range(5, 10))
def test_static_member_is_replaced_without_a_rebalance(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        first = await room.member(version, group_instance_id="one")
        second = await room.join(version, group_instance_id="one")
        assert (second.error_code, second.generation_id) == (0, 1)
        assert second.member_id != first.member_id
        assert second.skip_assignment == (version >= 9)
        fenced = await room.ask(
            HEARTBEAT, 4, group_id="g", generation_id=1, member_id=first.member_id, group_instance_id="one"
        )
        assert fenced.error_code == ErrorCode.fenced_instance_id

    in_group_room(story)


@pytest.mark.parametrize("version", range(6))
def test_sync_hands_out_the_part(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        joined = await room.join(9)
        synced = await room.ask(
            SYNC,
            version,
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[Message(member_id=joined.member_id, assignment=b"part")],
        )
        assert (synced.error_code, synced.assignment) == (0, b"part")
        named = ("consumer", "range") if version >= 5 else (None, None)
        assert (synced.protocol_type, synced.protocol_name) == named

    in_group_room(story)


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_must_name_its_protocol_from_version_five_on(missing: str) -> None:
    async def story(room: GroupRoom) -> None:
        joined = await room.join(9)
        named = {"protocol_type": "consumer", "protocol_name": "range", missing: None}
        synced = await room.ask(SYNC, 5, group_id="g", generation_id=1, member_id=joined.member_id, **named)
        assert synced.error_code == ErrorCode.inconsistent_group_protocol

    in_group_room(story)


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_is_answered(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        joined = await room.member()
        for generation, error in ((1, ErrorCode.none), (7, ErrorCode.illegal_generation)):
            beat = await room.ask(
                HEARTBEAT, version, group_id="g", generation_id=generation, member_id=joined.member_id
            )
            assert beat.error_code == error
        nobody = await room.ask(HEARTBEAT, version, group_id="", generation_id=1, member_id="")
        assert nobody.error_code == ErrorCode.invalid_group_id

    in_group_room(story)


@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves_with_its_error_on_top(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        joined = await room.member()
        for error in (ErrorCode.none, ErrorCode.unknown_member_id):
            left = await room.ask(LEAVE, version, group_id="g", member_id=joined.member_id)
            assert left.error_code == error

    in_group_room(story)


@pytest.mark.parametrize("version", range(3, 6))
def test_many_members_leave_each_with_its_own_error(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        await room.member(group_instance_id="one")
        leaving = [
            Message(member_id="", group_instance_id="one"),
            Message(member_id="", group_instance_id="two"),
            Message(member_id="who", group_instance_id=None),
        ]
        left = await room.ask(LEAVE, version, group_id="g", members=leaving)
        assert left.error_code == 0
        assert [(member.member_id, member.group_instance_id, member.error_code) for member in left.members] == [
            ("", "one", ErrorCode.none),
            ("", "two", ErrorCode.unknown_member_id),
            ("who", None, ErrorCode.unknown_member_id),
        ]

    in_group_room(story)


@pytest.mark.parametrize("version", range(6))
def test_nobody_leaves_a_group_without_a_name(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        left = await room.ask(LEAVE, version, group_id="", members=[Message(member_id="who")])
        assert left.error_code == ErrorCode.invalid_group_id

    in_group_room(story)


@pytest.mark.parametrize(("api_key", "version"), [(JOIN, 5), (SYNC, 3), (LEAVE, 1), (LEAVE, 4)])
def test_loading_coordinator_says_so(api_key: int, version: int) -> None:
    async def story(room: GroupRoom) -> None:
        room.start_loading()
        answer = await room.ask(api_key, version, group_id="g")
        assert answer.error_code == ErrorCode.coordinator_load_in_progress

    in_group_room(story)


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_to_a_loading_coordinator_ends_no_session(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        room.start_loading()
        beat = await room.ask(HEARTBEAT, version, group_id="g", member_id="m", generation_id=1)
        assert beat.error_code == ErrorCode.none

    in_group_room(story)
