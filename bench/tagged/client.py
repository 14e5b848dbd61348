"""The clients of the section "views", on confluent-kafka: each is a process of its own, for a bounded time.

Run by section.py. `load` fills a topic; `read` reads a topic or a view from start to end and counts the bytes that
librdkafka received; `trickle`, `follow` and `scan` are the traffic beside a measurement: tagged records at a steady
rate, consumers that wait for them, and one that reads a view from the start again and again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.tagged.layout import GOLD, LAYOUTS, ONE_IN, SETTINGS, SILVER, TAG_HEADER, is_gold, values
from bench.throughput import EAGER

ANSWER_SECONDS = 60.0
STATISTICS_MS = 100
TICK_SECONDS = 0.05

Result = dict[str, float]


def load(address: str, topic: str, count: int, layout_name: str) -> Result:
    layout = next(one for one in LAYOUTS if one == layout_name)
    refused: list[KafkaError] = []

    def settle(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": address, "log_level": 2, "on_delivery": settle, **SETTINGS[layout]})
    lines, matching = values(), 0
    for number, gold in enumerate(is_gold(layout, count)):
        matching += gold
        headers: dict[str, str | bytes | None] = {TAG_HEADER: GOLD if gold else SILVER}
        while not _produced(producer, topic, lines[number % len(lines)], headers):
            producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(ANSWER_SECONDS) or refused:
        raise RuntimeError(f"tagged records were not stored: {refused[0].str() if refused else 'no answer'}")
    return {"records": float(count), "matching": float(matching)}


def _produced(producer: Producer, topic: str, value: bytes, headers: dict[str, str | bytes | None]) -> bool:
    try:
        producer.produce(topic, value, partition=0, headers=headers)
    except BufferError:
        return False
    return True


def read(address: str, topic: str, seconds: float) -> Result:
    """From start to end: records, and the bytes that this client received, metadata included."""
    received: list[int] = []

    def note(statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        received.append(sum(broker["rxbytes"] for broker in brokers))

    extra = {"enable.partition.eof": True, "statistics.interval.ms": STATISTICS_MS, "stats_cb": note}
    consumer = _consumer(address, extra)
    consumer.assign([TopicPartition(topic, 0, 0)])
    records, ended, give_up_at = 0, False, time.monotonic() + seconds
    while not ended:
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{topic} was not read to its end within {seconds:.0f} s; {records:,} records came")
        for message in consumer.consume(10_000, 0.1):
            error = message.error()
            if error is None:
                records += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ended = True
            else:
                raise KafkaException(error)
    told = len(received)
    while len(received) < told + 2 and time.monotonic() < give_up_at:
        consumer.poll(0.05)  # the first statistics after the end may have been begun before it
    consumer.close()
    return {"records": float(records), "bytes": float(received[-1])}


def scan(address: str, topic: str, seconds: float) -> Result:
    """Read from start to end until the time is over: how often."""
    give_up_at, scans = time.monotonic() + seconds, 0
    consumer = _consumer(address, {"enable.partition.eof": True})
    while time.monotonic() < give_up_at:
        consumer.assign([TopicPartition(topic, 0, 0)])
        ended = False
        while not ended and time.monotonic() < give_up_at:
            ended = any(message.error() is not None for message in consumer.consume(10_000, 0.1))
        scans += ended
    return {"scans": float(scans)}


def follow(address: str, names: Sequence[str], seconds: float) -> Result:
    """Wait for new records of these topics or views until the time is over: how many came."""
    consumer = _consumer(address, {"auto.offset.reset": "latest"})
    ends = [consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=ANSWER_SECONDS)[1] for name in names]
    consumer.assign([TopicPartition(name, 0, end) for name, end in zip(names, ends, strict=True)])
    give_up_at, records = time.monotonic() + seconds, 0
    while time.monotonic() < give_up_at:
        records += len(consumer.consume(1000, 0.1))
    return {"records": float(records)}


def trickle(address: str, names: Sequence[str], seconds: float, per_second: int) -> Result:
    """So many tagged records a second to each of the topics, in small batches, until the time is over."""
    producer, lines = Producer({"bootstrap.servers": address, "log_level": 2}), values()
    begin, sent = time.monotonic(), 0
    while (now := time.monotonic()) < begin + seconds:
        while sent < (now - begin) * per_second:
            headers: dict[str, str | bytes | None] = {TAG_HEADER: GOLD if sent % ONE_IN == 0 else SILVER}
            for name in names:
                producer.produce(name, lines[sent % len(lines)], partition=0, headers=headers)
            sent += 1
        producer.poll(0)
        time.sleep(TICK_SECONDS)
    producer.flush(ANSWER_SECONDS)
    return {"records": float(sent * len(names))}


def _consumer(address: str, settings: dict[str, object]) -> Consumer:
    eager = dict(setting.split("=", 1) for setting in EAGER)
    common = {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, "log_level": 2}
    return Consumer({**common, **eager, **settings})


def main(verb: str, address: str, names: Sequence[str], rest: Sequence[str]) -> Result:
    if verb == "load":
        return load(address, names[0], int(rest[0]), rest[1])
    if verb == "trickle":
        return trickle(address, names, float(rest[0]), int(rest[1]))
    if verb == "follow":
        return follow(address, names, float(rest[0]))
    return {"read": read, "scan": scan}[verb](address, names[0], float(rest[0]))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3].split(","), sys.argv[4:])), flush=True)
