"""Latency of one message at a time: until it is acknowledged, and until a waiting consumer has it.

Called by run.py, in rounds like throughput.py. One go takes half a second and meets one state of the machine: its
processors are two cores or share one, and that may change from one second to the next. So every round has several goes,
in which the brokers take turns. Percentiles are those of one go; the table shows the median of all goes. acks=1 and
linger 0, so nothing is batched.

librdkafka passes each message from one thread to another and back, and on an idle machine these wake-ups are most of
the time. So the same is measured over a bare socket too: one request, one response, nothing else. And with a server
that only writes, answers and sleeps: the lower bound here for a broker that sleeps too.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from bench import cores, frames, topics
from bench.figures import Samples
from bench.lag import LagWatch
from bench.load import Generator, Order
from bench.peers import HOST, Peer
from bench.processes import Children
from bench.startup import in_turn

TOPIC = "bench-latency"
ECHO = "a plain echo"
MESSAGE_BYTES = 100
WARM_UP = 200
PERCENTILES = {"p50": 50.0, "p99": 99.0, "p999": 99.9}


class Latency:
    """Round trips of single messages on all peers."""

    def __init__(self, children: Children, generator: Generator, samples: Samples, lag: LagWatch, folder: Path) -> None:
        self._children, self._generator, self._samples = children, generator, samples
        self._lag, self._folder = lag, folder

    def prepare(self, peers: Sequence[Peer], messages: int) -> None:
        for peer in peers:
            with peer.awake():
                topics.create(peer.address, TOPIC)
                self._generator.acknowledgement_seconds(peer, _order(messages))
                self._generator.end_to_end_seconds(peer, _order(messages))

    def round(self, peers: Sequence[Peer], messages: int, goes: int) -> None:
        for number in range(goes):
            self._go(in_turn(peers, number), messages)

    def _go(self, peers: Sequence[Peer], messages: int) -> None:
        cores.measure(self._children, self._samples)
        for peer in peers:
            with peer.awake(), self._lag.stretch(peer):
                acknowledged, broker_cpu_seconds = peer.charged(
                    partial(self._generator.acknowledgement_seconds, peer, _order(messages))
                )
                self._samples.add("ack.cpu", peer.name, broker_cpu_seconds / messages * 1e6)
                self._add("ack", peer.name, acknowledged)
                self._add("end", peer.name, self._generator.end_to_end_seconds(peer, _order(messages)))
                self._add("bare", peer.name, bare_seconds(peer.port, messages))
        with self._generator.echo(self._folder) as port:
            self._add("bare", ECHO, bare_seconds(port, messages))

    def _add(self, metric: str, peer: str, seconds: list[float]) -> None:
        self._samples.add_percentiles(metric, peer, seconds, PERCENTILES)


def bare_seconds(port: int, messages: int) -> list[float]:
    """One request at a time over one socket: seconds from sending it to its acknowledgement."""
    with bare_producer(port, TOPIC) as send:
        return [send() for _ in range(WARM_UP + messages)][WARM_UP:]


@contextlib.contextmanager
def bare_producer(port: int, topic: str) -> Iterator[Callable[[], float]]:
    """A function that sends one small message over its own socket and returns the seconds that it took."""
    batch = frames.record_batch(1, MESSAGE_BYTES, time.time_ns() // 1_000_000)
    numbers = itertools.count()
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send() -> float:
            request = frames.produce(next(numbers), topic, 0, batch)
            start = time.perf_counter()
            connection.sendall(request)
            reply = connection.recv(4096)
            took = time.perf_counter() - start
            error, _ = frames.produced(reply[4:], topic)
            if error:
                raise RuntimeError(f"a message was rejected with error {error}")
            return took

        yield send


def _order(messages: int) -> Order:
    return Order(TOPIC, messages, size=MESSAGE_BYTES, settings=("linger.ms=0",))
