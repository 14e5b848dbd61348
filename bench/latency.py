"""One message at a time: how long until it is acknowledged, and until a waiting consumer has it.

Called by run.py, in rounds like throughput.py. Each round's percentiles are taken over that round's
messages; the table shows the median of the rounds. acks=1 and linger 0, so nothing waits for company.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import topics
from bench.figures import Samples, percentile
from bench.lag import LagWatch
from bench.load import Generator, Order
from bench.peers import Peer
from bench.processes import cpu_seconds

TOPIC = "bench-latency"
PERCENTILES = (("p50", 50.0), ("p99", 99.0), ("p999", 99.9))


class Latency:
    """Round trips of single messages on all peers."""

    def __init__(self, generator: Generator, samples: Samples, lag: LagWatch) -> None:
        self._generator, self._samples, self._lag = generator, samples, lag

    def prepare(self, peers: Sequence[Peer], messages: int) -> None:
        for peer in peers:
            with peer.awake():
                topics.create(peer.address, TOPIC)
                self._generator.acknowledgement_seconds(peer, _order(messages))
                self._generator.end_to_end_seconds(peer, _order(messages))

    def round(self, peers: Sequence[Peer], messages: int) -> None:
        for peer in peers:
            with peer.awake(), self._lag.stretch(peer):
                before = cpu_seconds(peer.pid)
                acknowledged = self._generator.acknowledgement_seconds(peer, _order(messages))
                self._samples.add("ack.cpu", peer.name, (cpu_seconds(peer.pid) - before) / messages * 1e6)
                self._add("ack", peer, acknowledged)
                self._add("end", peer, self._generator.end_to_end_seconds(peer, _order(messages)))

    def _add(self, metric: str, peer: Peer, seconds: list[float]) -> None:
        for label, percent in PERCENTILES:
            self._samples.add(f"{metric}.{label}", peer.name, percentile(seconds, percent) * 1000)


def _order(messages: int) -> Order:
    return Order(TOPIC, messages, settings=("linger.ms=0",))
