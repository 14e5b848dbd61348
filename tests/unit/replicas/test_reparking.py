"""What waits for its time outlives retention on all replicas; DeleteRecords cancels it. Three hosts, virtual time."""

from __future__ import annotations

import pytest

from headrace.model.transaction_end import TransactionEnd
from headrace.wire.batches import TRANSACTIONAL
from tests.unit.replicas.test_releasing import HOUR_MS, released, send, stage, values
from tests.unit.replicas.trio import Trio


def test_a_delay_of_an_hour_outlives_a_retention_of_a_second() -> None:
    async def story(trio: Trio) -> None:
        leader = trio.nodes[1]
        for at in range(30):
            send(leader, b"%d" % at, HOUR_MS + at)
        send(
            leader, b"inside", HOUR_MS + 100, producer_id=7, producer_epoch=0, base_sequence=0,
            attributes=TRANSACTIONAL,
        )  # fmt: skip
        await trio.alike()
        for _ in range(20):
            send(leader, b"x" * 2000)
            await trio.clock.sleep(10)
            for node in trio.nodes.values():
                await node.logs.trim()
        assert min(node.partition.log.start_offset for node in trio.nodes.values()) > 40
        leader.partition.append_end(TransactionEnd(7, 1, 0, True, 2))
        await trio.alike()
        trio.elect(2, isr=(1, 2, 3))
        await trio.clock.sleep(HOUR_MS / 1000 - 250)
        assert await values(trio, trio.nodes[2], 31) == [*(b"%d" % at for at in range(30)), b"inside"]

    stage(story, retention_ms=1000, segment_bytes=10_000, file_delete_delay_ms=1000)


def test_what_an_old_leader_parked_alone_goes_although_the_next_one_starts_behind_it() -> None:
    """The logs are compared from where the leader's begins. What lies before that in the other one tells nothing."""

    async def story(trio: Trio) -> None:
        one, two = trio.nodes[1], trio.nodes[2]
        for _ in range(2):
            send(one, b"x")
        await trio.alike()
        for other in (2, 3):
            trio.network.cut("broker-1", f"broker-{other}")
        send(one, b"alone", HOUR_MS)
        for _ in range(4):
            send(one, b"x")
        trio.hidden_from = {1}
        trio.elect(2, isr=(2, 3))
        for _ in range(3):
            send(two, b"y")
        await trio.until(lambda: two.partition.high_watermark == 5, "the next leader commits")
        two.partition.log.advance_start(4)
        trio.network.mend()
        trio.hidden_from = set()
        trio.publish()
        await trio.alike()
        assert one.partition.log.start_offset == 4
        assert not one.partition.log.schedule

    stage(story)


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_replica_that_comes_late_has_what_waits(trimmed: bool) -> None:
    async def story(trio: Trio) -> None:
        await trio.nodes[3].stop(crash=True)
        trio.store(isr=(1, 2), isr_epochs=(1, 1))
        leader = trio.nodes[1]
        send(leader, b"a", HOUR_MS)
        for _ in range(20):
            send(leader, b"x" * 3000)
            await trio.clock.sleep(5)
            if trimmed:
                await leader.logs.trim()
        await trio.nodes[3].start()
        trio.publish()
        await trio.until(lambda: 3 in trio.state.isr, "broker 3 joins")
        trio.elect(3, isr=(3,))
        assert len(trio.nodes[3].partition.log.schedule.pending) == 1
        await trio.clock.sleep(HOUR_MS / 1000)
        assert not trio.nodes[3].partition.log.schedule

    stage(story, retention_ms=1000, segment_bytes=10_000, file_delete_delay_ms=1000)


def test_delete_records_cancels_what_it_passes_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def story(trio: Trio) -> None:
        leader = trio.nodes[1]
        send(leader, b"gone", 5000)
        last = send(leader, b"stays", 5000)
        await trio.alike()
        with caplog.at_level("INFO"):
            assert leader.partition.delete_records(last) <= last
        assert "cancels 1 delayed records" in caplog.text
        await trio.until(
            lambda: all(node.partition.log.start_offset == last for node in trio.nodes.values()), "all have deleted it"
        )
        assert await values(trio, leader, 1) == [b"stays"]
        assert [value for value, _ in released(leader.partition)] == [b"stays"]

    stage(story)
