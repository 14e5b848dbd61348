"""Batches of 16 KB over one bare socket, five requests in flight: what idempotence costs a broker.

Called by delivery.py. With idempotence librdkafka itself uses more CPU per message, which limits the throughput on two
cores, whatever the broker does. Here all requests are built before the clock starts, with or without producer id and
sequence, so only the broker is measured. The producer id was not assigned by InitProducerId: brokers accept an unknown
producer.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from bench import frames
from bench.peers import HOST

RECORDS, RECORD_BYTES = 150, 100
IN_FLIGHT = 5
PRODUCER_ID = 1 << 40
PATIENCE_S = 30.0


def requests(topic: str, batches: int, *, idempotent: bool) -> list[bytes]:
    now_ms = time.time_ns() // 1_000_000
    plain = frames.record_batch(RECORDS, RECORD_BYTES, now_ms)
    made = []
    for number in range(batches):
        batch = plain
        if idempotent:
            batch = frames.record_batch(RECORDS, RECORD_BYTES, now_ms, (PRODUCER_ID, 0, number * RECORDS))
        made.append(frames.produce(number, topic, 0, batch, acks=-1))
    return made


def messages_per_second(port: int, topic: str, prepared: Sequence[bytes]) -> float:
    """Send all requests, and check that each was stored at its offset."""
    reply_bytes = frames.produced_bytes(topic)
    replies, sent = bytearray(), IN_FLIGHT
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.perf_counter()
        connection.sendall(b"".join(prepared[:sent]))
        while len(replies) < len(prepared) * reply_bytes:
            got = connection.recv(65536)
            if not got:
                raise ConnectionError(f"the broker closed the connection after {len(replies) // reply_bytes} replies")
            replies += got
            room = len(replies) // reply_bytes + IN_FLIGHT
            if room > sent:
                connection.sendall(b"".join(prepared[sent:room]))
                sent = room
        seconds = time.perf_counter() - begin
    for number in range(len(prepared)):
        reply = bytes(replies[number * reply_bytes + 4 : (number + 1) * reply_bytes])
        error, offset = frames.produced(reply, topic)
        if error or offset != number * RECORDS:
            raise RuntimeError(f"batch {number} of {topic}: error code {error}, offset {offset}")
    return len(prepared) * RECORDS / seconds
