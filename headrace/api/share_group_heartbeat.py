"""ShareGroupHeartbeat, v1: joins, stays in, and leaves a share group (KIP-932).

The member epoch selects the action: 0 to join, -1 to leave. Fields that have not changed since the last heartbeat are
omitted (null); likewise the response has an assignment only if it is new to the member. The member makes its own id.
"""

from __future__ import annotations

from headrace.api.contract import Reply, Request
from headrace.api.membership_answer import membership_answer
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.share_commands import ShareHeartbeat


class ShareGroupHeartbeat:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Reply:
        body = request.body
        topics: list[str] | None = body.subscribed_topic_names
        return membership_answer(
            self._groups.submit(
                ShareHeartbeat(
                    group_id=body.group_id,
                    member_id=body.member_id,
                    epoch=body.member_epoch,
                    client_id=request.client_id,
                    client_host=f"/{request.peer.host}",  # the format that Kafka's tools show
                    rack=body.rack_id,
                    topics=None if topics is None else tuple(topics),
                )
            )
        )
