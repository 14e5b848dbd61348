"""The metrics endpoint says what an operator looks at, of a broker that works."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from headrace.model.broker_config import BrokerConfig
from headrace.server.broker import Broker
from headrace.wire.messages import Message
from headrace.wire.records import Record, encode_batch
from headrace.world.world import real_world
from tests.raw_client import RawClient

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def work(port: int, now_ms: int) -> None:
    """A topic that drops doubles, three messages of which two are one, and a group that has read one of them."""
    with RawClient(port) as client:
        settings = [Message(name="headrace.dedup.window.ms", value="60000")]
        topic = Message(name="orders", num_partitions=1, replication_factor=1, configs=settings)
        assert client.call(19, 7, Message(topics=[topic], timeout_ms=5000)).topics[0].error_code == 0
        for name in (b"a", b"b", b"a"):
            batch = encode_batch([Record(0, now_ms, None, b"value", (("headrace.id", name),))])
            data = [Message(name="orders", partition_data=[Message(index=0, records=batch)])]
            produced = client.call(0, 9, Message(acks=1, timeout_ms=5000, topic_data=data))
            assert produced.responses[0].partition_responses[0].error_code == 0
        for _ in range(100):  # the coordinator loads its partitions after its topic was made
            found = client.call(10, 4, Message(key_type=0, coordinator_keys=["kitchen"]))
            partition = Message(partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata="")
            commit = Message(group_id="kitchen", topics=[Message(name="orders", partitions=[partition])])
            committed = client.call(8, 8, commit).topics[0].partitions[0].error_code
            if not found.coordinators[0].error_code and not committed:
                return
        raise AssertionError(f"the offset was not committed: {committed}")


def test_what_happened_can_be_read_off(tmp_path: Path) -> None:
    async def story() -> Samples:
        world = real_world()
        broker = Broker(world, BrokerConfig(), tmp_path, ("127.0.0.1", 0), metrics=("127.0.0.1", 0))
        await broker.start()
        try:
            await asyncio.to_thread(work, broker.address[1], world.clock.now_ms())
            assert broker.metrics_port is not None
            return await asyncio.to_thread(scrape, broker.metrics_port)
        finally:
            await broker.stop()

    samples = asyncio.run(story())
    orders = (("partition", "0"), ("topic", "orders"))
    kitchen = (("group", "kitchen"), *orders)
    assert samples["headrace_log_end_offset", orders] == 3
    assert samples["headrace_log_start_offset", orders] == 0
    assert samples["headrace_bytes_in_total", orders] > 0
    assert samples["headrace_log_offline", orders] == 0
    assert samples["headrace_dedup_duplicates_total", orders] == 1
    assert samples["headrace_dedup_ids_forgotten_total", orders] == 0
    assert samples["headrace_group_lag", kitchen] == 2
    assert samples["headrace_group_lag_seconds", kitchen] >= 0
    assert samples["headrace_request_seconds_count", (("api", "Produce"),)] == 3
    assert ("headrace_event_loop_lag_seconds_count", ()) in samples
    assert samples["headrace_connections_accepted_total", ()] == 1
    assert samples["headrace_active_controller", ()] == samples["headrace_brokers", ()] == 1
    assert samples["headrace_offline_partitions", ()] == samples["headrace_moving_partitions", ()] == 0
    assert samples["headrace_recovering_partitions", ()] == samples["headrace_unclean_elections_total", ()] == 0


def test_what_waits_for_its_time_can_be_read_off(tmp_path: Path) -> None:
    def work(port: int, now_ms: int) -> None:
        with RawClient(port) as client:
            settings = [Message(name="headrace.delay.enable", value="true")]
            topic = Message(name="reminders", num_partitions=1, replication_factor=1, configs=settings)
            assert client.call(19, 7, Message(topics=[topic], timeout_ms=5000)).topics[0].error_code == 0
            for headers in (
                (("headrace.delay-ms", b"0"),),
                (("headrace.delay-ms", b"100000"),),
                (("headrace.delay-ms", b"100000"),),
                (("headrace.cancel", b"5"),),
            ):
                batch = encode_batch([Record(0, now_ms, None, b"value", headers)])
                data = [Message(name="reminders", partition_data=[Message(index=0, records=batch)])]
                produced = client.call(0, 9, Message(acks=1, timeout_ms=5000, topic_data=data))
                (answer,) = produced.responses[0].partition_responses
                assert answer.error_code == 0, answer.error_message
                if answer.base_offset == 1:
                    _until_released(client)

    def _until_released(client: RawClient) -> None:
        for _ in range(1000):
            place = Message(partition_index=0, timestamp=-1, current_leader_epoch=-1)
            asked = Message(replica_id=-1, isolation_level=0, topics=[Message(name="reminders", partitions=[place])])
            if client.call(2, 5, asked).topics[0].partitions[0].offset == 4:
                return
        raise AssertionError("the record was not released")

    async def story() -> Samples:
        world = real_world()
        broker = Broker(world, BrokerConfig(), tmp_path, ("127.0.0.1", 0), metrics=("127.0.0.1", 0))
        await broker.start()
        try:
            await asyncio.to_thread(work, broker.address[1], world.clock.now_ms())
            assert broker.metrics_port is not None
            return await asyncio.to_thread(scrape, broker.metrics_port)
        finally:
            await broker.stop()

    samples = asyncio.run(story())
    reminders = (("partition", "0"), ("topic", "reminders"))
    assert samples["headrace_delayed_pending", reminders] == 1
    assert samples["headrace_delayed_held", reminders] == 0
    assert samples["headrace_delayed_overdue_seconds", reminders] == 0
    assert samples["headrace_delayed_released_total", reminders] == 1
    assert samples["headrace_delayed_cancelled_total", reminders] == 1
    assert samples["headrace_delayed_lateness_seconds_count", reminders] == 1
