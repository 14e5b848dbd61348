"""The client of NATS JetStream, on nats-py: loads message schedules, and reads what they publish.

Run by section.py as a process of its own, in an environment that has nats-py. A schedule is a message of a stream with
`allow_msg_schedules`; a subject holds one schedule, so each message has its own. Messages are published with a reply
subject, a few thousand in flight, and every acknowledgement is read: nats-py's own way of publishing without waiting
makes a future per message and is several times slower.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime

import nats
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy, Header, RetentionPolicy, StorageType, StreamConfig

from bench.delayed.work import Arrival, Batch, Collection, Task, parse

IN_FLIGHT = 4000
LATER, NOW = "later", "now"
QUIET_SECONDS = 30.0


async def make(task: Task) -> dict[str, float]:
    connection = await nats.connect(task.address)
    await connection.jetstream().add_stream(
        StreamConfig(
            name=task.place,
            subjects=[f"{LATER}.>", NOW],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            allow_msg_schedules=True,
        )
    )
    await connection.close()
    return {}


class Loader:
    """Publishes a batch with a bounded number in flight; ends early at its time limit."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._acknowledged, self._sent = 0, 0
        self._moved = asyncio.Event()
        self._refused: str | None = None

    async def run(self, address: str, seconds: float) -> dict[str, float]:
        connection = await nats.connect(address)
        inbox = connection.new_inbox()
        await connection.subscribe(f"{inbox}.*", cb=self._acknowledge)
        begin = time.monotonic()
        for number, due_ms, payload in self._batch.messages():
            while self._sent - self._acknowledged >= IN_FLIGHT:
                await self._progress()
            if time.monotonic() - begin > seconds:
                break
            headers = {Header.SCHEDULE.value: at(due_ms), Header.SCHEDULE_TARGET.value: NOW}
            subject = f"{LATER}.{self._batch.name}.{number}"
            await connection.publish(subject, payload, reply=f"{inbox}.a", headers=headers)
            self._sent += 1
        while self._acknowledged < self._sent:
            await self._progress()
        took = time.monotonic() - begin
        await connection.close()
        return {"loaded": float(self._sent), "seconds": took, "done_ms": time.time() * 1000}

    async def _progress(self) -> None:
        self._moved.clear()
        await asyncio.wait_for(self._moved.wait(), QUIET_SECONDS)
        if self._refused:
            raise RuntimeError(f"a schedule was refused: {self._refused}")

    async def _acknowledge(self, message: Msg) -> None:
        if b'"error"' in message.data:
            self._refused = message.data.decode()
        self._acknowledged += 1
        self._moved.set()


async def read(task: Task) -> dict[str, float]:
    collection, done = Collection(task.batch.count), asyncio.Event()

    async def take(message: Msg) -> None:
        stamp_ms = message.metadata.timestamp.timestamp() * 1000
        collection.take(Arrival(time.time() * 1000, (message.data,), (stamp_ms,)))
        if collection.complete:
            done.set()

    connection = await nats.connect(task.address)
    config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
    unlimited = {"pending_msgs_limit": -1, "pending_bytes_limit": -1}
    await connection.jetstream().subscribe(NOW, cb=take, ordered_consumer=True, config=config, **unlimited)
    print("ready", flush=True)
    try:
        await asyncio.wait_for(done.wait(), task.seconds)
    except TimeoutError:
        pass
    summary = collection.summary()
    await connection.close()
    return summary


def at(due_ms: int) -> str:
    moment = datetime.fromtimestamp(due_ms / 1000, UTC)
    return f"@at {moment:%Y-%m-%dT%H:%M:%S}.{due_ms % 1000:03d}Z"


async def main(task: Task) -> dict[str, float]:
    if task.verb == "load":
        return await Loader(task.batch).run(task.address, task.seconds)
    return await {"make": make, "read": read}[task.verb](task)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(parse(sys.argv[1:])))), flush=True)
