"""Whether a disk may lose writes now: the running process of every broker must be in sync for each of its replicas.

An entry of an ISR names one start of a broker, by its epoch. Kafka's metadata shows only the broker's number, so the
entry of a process that has just lost its disk looks like that of its successor, until the old session has ended. This
asks ZooKeeper instead. The rule is that of sim/faults.py. Called by __main__.py.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.cluster import znodes
from headrace.cluster.store import NoNode, Store


async def missing(store: Store, brokers: Collection[int], replicas: int) -> str | None:
    """What is not in sync, or None. `brokers`: those whose present process has registered; each has a replica of every
    partition, so there are `replicas` of each."""
    if len(brokers) < replicas:
        return f"only the brokers {sorted(brokers)} run and have registered"
    epochs: dict[int, int] = {}
    try:
        for broker in brokers:
            data, _ = await store.get(znodes.broker_path(broker))
            epochs[broker] = znodes.decode_registration(broker, data).epoch
        for name in await store.children(znodes.TOPICS):
            topic = znodes.decode_topic(name, (await store.get(znodes.topic_path(name)))[0])
            for index in range(topic.partitions):
                path = znodes.partition_path(topic.id, index)
                state = znodes.decode_partition(path, (await store.get(path))[0])
                if len(state.replicas) < replicas or state.removing:
                    return f"{name}-{index} has the replicas {state.replicas}"
                if set(state.isr) != {(broker, epochs.get(broker)) for broker in state.replicas}:
                    return f"{name}-{index}: in sync {state.isr}, registered {sorted(epochs.items())}"
    except NoNode as gone:
        return f"{gone.path} is missing in ZooKeeper"
    return None
