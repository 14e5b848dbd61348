"""ListGroups, DescribeGroups, DeleteGroups and FindCoordinator in every version, through real bytes."""

import asyncio

import msgspec
import pytest

from headrace.api.find_coordinator import FindCoordinator
from headrace.model.image import TRANSACTION_STATE_TOPIC, ClusterImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import SystemClock
from tests.unit.api.admin_room import ask
from tests.unit.api.group_room import DELETE, DESCRIBE, LIST, GroupRoom, in_group_room
from tests.unit.coordinators.stage import BROKER_ID, Cluster, subscription

FIND = 10


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_with_what_the_version_has(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        await room.member(group="live")
        await room.commit(1, group="simple")
        listed = await room.ask(LIST, version)
        assert [(group.group_id, group.protocol_type) for group in listed.groups] == [
            ("live", "consumer"),
            ("simple", ""),
        ]
        if version >= 4:
            assert [group.group_state for group in listed.groups] == ["Stable", "Empty"]
        if version >= 5:
            assert [group.group_type for group in listed.groups] == ["classic", "classic"]

    in_group_room(story)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        pytest.param({"states_filter": [" stable "]}, ["live"], id="state"),
        pytest.param({"states_filter": ["Empty", "Dead"]}, ["simple"], id="states"),
        pytest.param({"types_filter": ["Classic"]}, ["live", "simple"], id="type"),
        pytest.param({"types_filter": ["share"]}, [], id="other-type"),
    ],
)
def test_list_is_filtered(filters: dict[str, list[str]], names: list[str]) -> None:
    async def story(room: GroupRoom) -> None:
        await room.member(group="live")
        await room.commit(1, group="simple")
        assert [group.group_id for group in (await room.ask(LIST, 5, **filters)).groups] == names

    in_group_room(story)


def test_list_of_a_loading_coordinator_is_not_half_a_list() -> None:
    async def story(room: GroupRoom) -> None:
        room.start_loading()
        assert (await room.ask(LIST, 5)).error_code == ErrorCode.coordinator_load_in_progress

    in_group_room(story)


@pytest.mark.parametrize("version", range(7))
def test_stable_group_is_described_with_members_and_parts(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        joined = await room.member()
        (group,) = (await room.ask(DESCRIBE, version, groups=["g"])).groups
        assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
            0,
            "Stable",
            "consumer",
            "range",
        )
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/10.0.0.9")
        assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"part")
        assert group.authorized_operations == -(2**31)

    in_group_room(story)


@pytest.mark.parametrize("version", range(7))
def test_group_that_does_not_exist_is_dead(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        (group,) = (await room.ask(DESCRIBE, version, groups=["nobody"])).groups
        assert (group.group_state, group.members) == ("Dead", [])
        if version >= 6:
            assert group.error_code == ErrorCode.group_id_not_found
            assert "nobody" in group.error_message
        else:
            assert group.error_code == 0

    in_group_room(story)


def test_nothing_is_said_of_parts_during_a_rebalance() -> None:
    async def story(room: GroupRoom) -> None:
        await room.member()
        joining = asyncio.ensure_future(room.join(3))
        await asyncio.sleep(0.001)
        (group,) = (await room.ask(DESCRIBE, 6, groups=["g"])).groups
        assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
        assert [(member.member_metadata, member.member_assignment) for member in group.members] == [(b"", b"")] * 2
        joining.cancel()

    in_group_room(story)


@pytest.mark.parametrize("version", range(3, 7))
def test_all_operations_are_allowed_when_asked(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        await room.commit(1)
        described = await room.ask(DESCRIBE, version, groups=["g"], include_authorized_operations=True)
        read, delete, describe = 3, 6, 8
        assert all(described.groups[0].authorized_operations & 1 << bit for bit in (read, delete, describe))

    in_group_room(story)


@pytest.mark.parametrize("version", range(3))
def test_only_empty_groups_are_deleted(version: int) -> None:
    async def story(room: GroupRoom) -> None:
        await room.member(group="live")
        await room.commit(1, group="simple")
        deleted = await room.ask(DELETE, version, groups_names=["live", "simple", "nobody"])
        assert [(result.group_id, result.error_code) for result in deleted.results] == [
            ("live", ErrorCode.non_empty_group),
            ("simple", ErrorCode.none),
            ("nobody", ErrorCode.group_id_not_found),
        ]
        assert [group.group_id for group in (await room.ask(LIST, 5)).groups] == ["live"]
        assert list(room.coordinator.group_offsets()) == []

    in_group_room(story)


# --- FindCoordinator -------------------------------------------------------------------------------------------------


def finder(cluster: Cluster, error: KafkaError | None = None) -> FindCoordinator:
    async def ensure(name: str) -> None:
        if error is not None:
            raise error
        cluster.make_offsets_topic()

    return FindCoordinator(cluster, lambda peer, broker: (broker.host, broker.port), ensure, SystemClock())


def find(handler: FindCoordinator, version: int, *keys: str, key_type: int = 0) -> list[tuple[object, ...]]:
    """(node, host, port, error) for each key, whatever the layout."""
    body = {"coordinator_keys": list(keys)} if version >= 4 else {"key": keys[0]}
    found = asyncio.run(ask(handler, FIND, version, key_type=key_type, **body))
    answers = found.coordinators if version >= 4 else [found]
    if version >= 4:
        assert [answer.key for answer in answers] == list(keys)
    return [(answer.node_id, answer.host, answer.port, answer.error_code) for answer in answers]


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("partitions", [0, 50])
def test_coordinator_is_found_and_its_topic_made_for_the_first(version: int, partitions: int) -> None:
    handler = finder(Cluster({}, offsets_partitions=partitions))
    assert find(handler, version, "g") == [(BROKER_ID, "broker.example", 9092, ErrorCode.none)]


@pytest.mark.parametrize("version", range(4, 7))
def test_coordinators_of_many_groups_are_found_at_once(version: int) -> None:
    assert [found[0] for found in find(finder(Cluster({})), version, "g", "h")] == [BROKER_ID, BROKER_ID]


@pytest.mark.parametrize("version", range(7))
def test_trouble_with_the_topic_makes_clients_ask_again(version: int) -> None:
    handler = finder(Cluster({}, offsets_partitions=0), KafkaError(ErrorCode.invalid_replication_factor, "no brokers"))
    assert find(handler, version, "g") == [(-1, "", -1, ErrorCode.coordinator_not_available)]


class Electing(Cluster):
    """The leader's broker is gone for the first so many looks."""

    def __init__(self, looks: int) -> None:
        super().__init__({})
        self.looks = looks

    def image(self) -> ClusterImage:
        self.looks -= 1
        image = super().image()
        return image if self.looks < 0 else msgspec.structs.replace(image, brokers={})


@pytest.mark.parametrize("version", [3, 4])  # one layout each
def test_the_answer_waits_for_an_election_but_not_for_long(version: int) -> None:
    assert find(finder(Electing(looks=4)), version, "g") == [(BROKER_ID, "broker.example", 9092, ErrorCode.none)]
    assert find(finder(Electing(looks=10**6)), version, "g") == [(-1, "", -1, ErrorCode.coordinator_not_available)]


@pytest.mark.parametrize("version", range(1, 7))
def test_coordinator_of_a_transactional_id_leads_its_part_of_another_topic(version: int) -> None:
    found = find(finder(Cluster({TRANSACTION_STATE_TOPIC: {}})), version, "my-transactional-id", key_type=1)
    assert found == [(BROKER_ID, "broker.example", 9092, ErrorCode.none)]


@pytest.mark.parametrize("version", range(1, 7))
def test_share_groups_are_refused_at_once(version: int) -> None:
    found = find(finder(Cluster({})), version, "my-share-group", key_type=2)
    assert found == [(-1, "", -1, ErrorCode.invalid_request)]
