"""The blocking client on a real broker: its topics and leaders, across a restart."""

from headrace.client.metadata import Cluster, error_codes
from headrace.testing.local_broker import LocalBroker
from headrace.wire.messages import Message

CREATE_TOPICS, LIST_OFFSETS = 19, 2


def test_a_real_broker_is_asked_across_a_restart(broker: LocalBroker) -> None:
    cluster = Cluster([broker.bootstrap], "test")
    topic = Message(name="orders", num_partitions=3, replication_factor=1)
    created = cluster.call(CREATE_TOPICS, Message(topics=[topic], timeout_ms=20_000))
    assert list(error_codes(created)) == [0]
    assert [part.index for part in cluster.topics(["orders"])["orders"].partitions] == [0, 1, 2]
    assert cluster.topics(["nowhere"]) == {}
    broker.restart()
    part = Message(partition_index=2, timestamp=-1)
    answer = cluster.call_leader(
        "orders", 2, LIST_OFFSETS, Message(replica_id=-1, topics=[Message(name="orders", partitions=[part])])
    )
    assert answer.topics[0].partitions[0].offset == 0
    cluster.close()
