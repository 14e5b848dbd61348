"""What the metrics say of share groups."""

from __future__ import annotations

from headrace.api.contract import Caller, Peer
from headrace.api.share_sessions import ShareSessions
from headrace.replicas.share.deliveries import ACCEPT
from headrace.server.share_metrics import share_metrics
from tests.unit.replicas.share.leader import Leader, acknowledge, play, take


def test_sessions_and_records_in_flight_are_counted() -> None:
    async def story(leader: Leader) -> None:
        sessions = ShareSessions(leader.partitions)
        sessions.open("cooks", "ann", Caller(Peer("", 1, "", 2)))
        live = await leader.open()
        take(live, "ann", 0, 9)
        await acknowledge(live, "ann", 0, 3, ACCEPT)
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for metric in share_metrics(sessions)
            for sample in metric.samples
        }
        place = ("cooks", "orders", "0")
        assert samples == {
            ("headrace_share_sessions",): 1,
            ("headrace_share_records_in_flight", *place): 6,
            ("headrace_share_offsets_behind", *place): 46,
        }

    play(story)
