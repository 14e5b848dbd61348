"""The client of headrace, on confluent-kafka: loads delayed messages, and reads them when they are delivered.

Run by section.py as a process of its own. Any Kafka client does the same: the due time is a header.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.delayed.work import Arrival, Collection, Task, parse
from bench.throughput import EAGER

DELIVER_AT = "headrace.deliver-at"
ANSWER_SECONDS = 30.0
AT_ONCE = 20_000


def load(task: Task) -> dict[str, float]:
    """Send the batch; ends early at its time limit."""
    refused: list[KafkaError] = []

    def settle(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": task.address, "log_level": 2, "on_delivery": settle})
    producer.list_topics(task.place, timeout=ANSWER_SECONDS)
    begin, sent = time.monotonic(), 0
    for _, due_ms, payload in task.batch.messages():
        if sent % 1000 == 0:
            producer.poll(0)
            if refused or time.monotonic() - begin > task.seconds:
                break
        while not _sent(producer, task.place, payload, due_ms):
            producer.poll(0.01)
        sent += 1
    left = producer.flush(ANSWER_SECONDS)
    if refused or left:
        why = refused[0].str() if refused else f"{left:,} were not acknowledged within {ANSWER_SECONDS:.0f} s"
        raise RuntimeError(f"delayed messages were not stored: {why}")
    return {"loaded": float(sent), "seconds": time.monotonic() - begin, "done_ms": time.time() * 1000}


def _sent(producer: Producer, topic: str, payload: bytes, due_ms: int) -> bool:
    try:
        producer.produce(topic, payload, partition=0, headers=[(DELIVER_AT, b"%d" % due_ms)])
    except BufferError:
        return False
    return True


def read(task: Task) -> dict[str, float]:
    """Read from the present end of the topic on."""
    eager = dict(setting.split("=", 1) for setting in EAGER)
    consumer = Consumer({"bootstrap.servers": task.address, "group.id": "bench", "enable.auto.commit": False, **eager})
    _, end = consumer.get_watermark_offsets(TopicPartition(task.place, 0), timeout=ANSWER_SECONDS)
    consumer.assign([TopicPartition(task.place, 0, end)])
    consumer.poll(0)
    print("ready", flush=True)
    collection, give_up_at = Collection(task.batch.count), time.monotonic() + task.seconds
    while not collection.complete and time.monotonic() < give_up_at:
        first = consumer.poll(0.1)
        if first is None:
            continue
        messages = [first, *consumer.consume(AT_ONCE, 0)]
        at_ms = time.time() * 1000
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        payloads = [message.value() or b"" for message in messages]
        collection.take(Arrival(at_ms, payloads, [message.timestamp()[1] for message in messages]))
    consumer.close()
    return collection.summary()


if __name__ == "__main__":
    task = parse(sys.argv[1:])
    print(json.dumps({"load": load, "read": read}[task.verb](task)), flush=True)
