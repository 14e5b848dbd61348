"""The client of Redis, on redis-py with hiredis: a sorted set of payloads by due time, and the worker that empties it.

Run by section.py and servers.py as processes of their own, in an environment that has redis-py. Redis has no delayed
messages; this is the usual recipe for them. The worker moves what is due from the sorted set into a stream, up to a
thousand at a time, each portion in one transaction, so nothing is lost or doubled if it is killed. When nothing is due
it sleeps until the next message is, at most ten milliseconds, as an earlier one may be added at any time.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator

import redis

from bench.delayed.work import Arrival, Batch, Collection, Task, parse

STREAM, FIELD = "now", "m"
PORTION = 1000
LONGEST_SLEEP_S = 0.01
AT_ONCE = 20_000


def load(client: redis.Redis, task: Task) -> dict[str, float]:
    """Add the batch, one command per message, a thousand of them in flight; ends early at its time limit."""
    begin, sent = time.monotonic(), 0
    for portion in _portions(task.batch):
        if time.monotonic() - begin > task.seconds:
            break
        with client.pipeline(transaction=False) as pipeline:
            for _, due_ms, payload in portion:
                pipeline.zadd(task.place, {payload: due_ms})
            pipeline.execute()
        sent += len(portion)
    return {"loaded": float(sent), "seconds": time.monotonic() - begin, "done_ms": time.time() * 1000}


def _portions(batch: Batch) -> Iterator[list[tuple[int, int, bytes]]]:
    messages = batch.messages()
    while portion := list(itertools.islice(messages, PORTION)):
        yield portion


def work(client: redis.Redis, task: Task) -> dict[str, float]:
    """The worker; it ends when it is stopped, or at its time limit."""
    give_up_at = time.monotonic() + task.seconds
    while time.monotonic() < give_up_at:
        now_ms = time.time() * 1000
        due = client.zrangebyscore(task.place, "-inf", now_ms, start=0, num=PORTION)
        if due:
            with client.pipeline(transaction=True) as pipeline:
                pipeline.zrem(task.place, *due)
                for payload in due:
                    pipeline.xadd(STREAM, {FIELD: payload})
                pipeline.execute()
            continue
        following = client.zrange(task.place, 0, 0, withscores=True)
        wait_s = (following[0][1] - now_ms) / 1000 if following else LONGEST_SLEEP_S
        time.sleep(max(0.0, min(wait_s, LONGEST_SLEEP_S)))
    return {}


def read(client: redis.Redis, task: Task) -> dict[str, float]:
    """Read from the present end of the stream on."""
    newest = client.xrevrange(STREAM, count=1)
    at = newest[0][0] if newest else b"0"
    print("ready", flush=True)
    collection, give_up_at = Collection(task.batch.count), time.monotonic() + task.seconds
    while not collection.complete and time.monotonic() < give_up_at:
        for _, entries in client.xread({STREAM: at}, count=AT_ONCE, block=100) or ():
            at_ms, at = time.time() * 1000, entries[-1][0]
            stamps_ms = [float(entry.split(b"-")[0]) for entry, _ in entries]
            collection.take(Arrival(at_ms, [fields[FIELD.encode()] for _, fields in entries], stamps_ms))
    return collection.summary()


if __name__ == "__main__":
    task = parse(sys.argv[1:])
    host, _, port = task.address.partition(":")
    # The old protocol: hiredis reads its replies fastest, and they look the same in all versions of redis-py.
    with redis.Redis(host, int(port), protocol=2) as connected:
        verbs = {"load": load, "work": work, "read": read}
        print(json.dumps(verbs[task.verb](connected, task)), flush=True)
