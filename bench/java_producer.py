"""Kafka's Java producer, run by Kafka's own performance tool: the cost of idempotence with the client that has it on by
default.

Called by delivery.py. It keeps five requests in flight with and without idempotence, while librdkafka changes that
number; idempotence costs it a few per cent more CPU. The tool's figures after its warm-up are used, because the JVM
has compiled nothing before that.
"""

from __future__ import annotations

import re
from pathlib import Path

from bench.peers import Peer
from bench.processes import Children

RUN_SECONDS = 120.0
_TOOL = "org.apache.kafka.tools.ProducerPerformance"
_STEADY = re.compile(r"steady state records sent, ([\d.]+) records/sec")


class JavaProducer:
    def __init__(self, children: Children, jars: Path) -> None:
        self._children, self._jars = children, jars

    def messages_per_second(self, peer: Peer, topic: str, messages: int, *, idempotent: bool) -> float:
        """Messages of 100 bytes with acks=all; a quarter of them are the warm-up."""
        sizes = ["--num-records", str(messages), "--warmup-records", str(messages // 4), "--record-size", "100"]
        settings = ["acks=all", f"enable.idempotence={str(idempotent).lower()}"]
        command = ["java", "-cp", f"{self._jars}/*", _TOOL, "--bootstrap-server", peer.address, "--topic", topic]
        done = self._children.run(
            [*command, *sizes, "--throughput", "-1", "--command-property", *settings], seconds=RUN_SECONDS
        )
        steady = _STEADY.search(done.out)
        if done.code != 0 or steady is None:
            raise RuntimeError(f"{peer.name}: Kafka's producer failed on {topic}: {done.reason()}")
        return float(steady.group(1))
