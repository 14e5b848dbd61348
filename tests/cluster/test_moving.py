"""Partitions move between real brokers while clients work, and a lopsided cluster is brought into balance."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic

from headrace.cli.direct_requests import DirectRequests
from headrace.wire.messages import Message
from tests.clients.patience import until
from tests.cluster.clusters import PATIENCE_S, Cluster, produced
from tests.cluster.test_survival import read_all

ALTER_REASSIGNMENTS = 45


def headrace(cluster: Cluster, *words: str) -> Any:
    command = [str(Path(sys.executable).with_name("headrace")), *words, "-b", cluster.bootstrap, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def create(cluster: Cluster, name: str, assignment: list[list[int]]) -> None:
    admin = cluster.admin()
    admin.create_topics([NewTopic(name, len(assignment), replica_assignment=assignment)])[name].result(PATIENCE_S)
    until(f"leaders of {name}", lambda: cluster._led(name, len(assignment)), PATIENCE_S)


def test_a_partition_moves_to_another_broker_while_it_is_written_to(cluster: Cluster) -> None:
    create(cluster, "moved", [[1, 2]])
    producer = cluster.producer()
    before = produced(producer, "moved", [b"a%d" % at for at in range(200)], 1)
    with DirectRequests(cluster.bootstrap) as requests:
        asked = [Message(name="moved", partitions=[Message(partition_index=0, replicas=[3, 2])])]
        answer = requests.anywhere(ALTER_REASSIGNMENTS, 0, Message(topics=asked, timeout_ms=20_000))
        assert [one.error_code for topic in answer.responses for one in topic.partitions] == [0]
    during = produced(producer, "moved", [b"b%d" % at for at in range(200)], 1)

    def arrived() -> bool:
        state = cluster.metadata("moved").topics["moved"].partitions[0]
        return state.replicas == [3, 2] and sorted(state.isrs) == [2, 3] and state.leader in (2, 3)

    until("moved-0 on brokers 3 and 2", arrived, PATIENCE_S)
    after = produced(producer, "moved", [b"c%d" % at for at in range(200)], 1)
    assert len(before + during + after) == 600
    assert read_all(cluster, "moved", 1) == before + during + after


def test_a_lopsided_cluster_is_balanced_by_one_command(cluster: Cluster) -> None:
    create(cluster, "lopsided", [[1, 2]] * 12)
    values = produced(cluster.producer(), "lopsided", [b"%d" % at for at in range(240)], 12)
    shown = headrace(cluster, "cluster", "balance", "--dry-run")
    assert shown["moves"]
    done = headrace(cluster, "cluster", "balance", "--at-once", "4")
    assert done["moves"] == shown["moves"]
    for what in ("leads", "replicas"):
        counts = [share[what] for share in done["after"]]
        assert max(counts) - min(counts) <= 1

    def in_place() -> bool:
        states = [state for topic in cluster.metadata().topics.values() for state in topic.partitions.values()]
        leads = Counter(state.leader for state in states)
        holds = Counter(broker for state in states for broker in state.replicas)
        return all(max(found.values()) - min(found.values()) <= 1 and len(found) == 3 for found in (leads, holds))

    until("leaders and replicas that differ by at most one", in_place, PATIENCE_S)
    assert sorted(read_all(cluster, "lopsided", 12)) == sorted(values)
    assert headrace(cluster, "cluster", "balance")["moves"] == []
