"""ListGroups, v0 to v5: the groups that this broker coordinates.

v4 filters by state, v5 by type, which is `classic` or `consumer` (KIP-848). Filters ignore case.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.api.contract import Reply, Request, Steps
from headrace.api.pieces import Pace
from headrace.coordinators.groups.commands import GroupListing
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message


class ListGroups:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Reply:
        states = {state.strip().lower() for state in request.body.states_filter}
        types = {kind.lower() for kind in request.body.types_filter}
        return self._list(states, types)

    async def _list(self, states: set[str], types: set[str]) -> Message | Steps[Message]:
        try:
            return _answer(await self._groups.list_groups(), states, types)
        except KafkaError as error:
            return Message(error_code=error.code)


def _answer(listed: Iterable[GroupListing], states: set[str], types: set[str]) -> Steps[Message]:
    groups, pace = list[Message](), Pace()
    for group in listed:
        if (not states or group.state.lower() in states) and (not types or group.kind in types):
            groups.append(
                Message(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.kind,
                )
            )
        if pace.is_over():
            yield
    return Message(groups=groups)
