"""`headrace produce`: writes lines of stdin or of a file as messages to a topic.

Called by main. Counts delivered and failed messages by the broker's acknowledgements, not by what was passed to the
client. Invariant: the exit code is 0 only when every message read was delivered.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connection import client_settings, open_admin, plain_words, reason_of
from headrace.cli.message_source import Splitting, read_chunks, split_key, split_messages
from headrace.cli.moments import now_ms, parse_moment
from headrace.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, examples, parse_pairs, unescape
from headrace.cli.screen import plural, print_json, remark
from headrace.cli.stopping import Stop, stop_on_signals
from headrace.cli.timing import AtOption, CronOption, DelayOption, ZoneOption, timing_headers
from headrace.cli.topics import topic_names
from headrace.model.failure import Failure
from headrace.model.tag_filter import TAG_HEADER

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

EXAMPLES = examples(
    "echo 'hello' | headrace produce orders",
    "headrace produce orders --file orders.txt --key-delimiter : --compression zstd",
    "headrace produce orders --file photo.jpg --whole -H type=image/jpeg --key photo-1",
    "printf 'user-1:' | headrace produce users --key-delimiter : --tombstones",
    "echo 'call back' | headrace produce reminders --delay 10m",
    "echo 'report' | headrace produce jobs --cron '0 8 * * *' --tz Europe/Berlin",
)
LARGEST_MESSAGE_BYTES = 1_000_000_000  # the client's maximum: the broker decides how large a message may be
POLL_EVERY = 1000  # messages between two polls for acknowledgements


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Delivery:
    """Counts of one run, updated by the client's delivery reports."""

    def __init__(self) -> None:
        self.delivered = 0
        self.delivered_bytes = 0
        self.failures: Counter[str] = Counter()
        self.scheduled: list[str] | None = None  # PARTITION:ID of messages that are kept back until they are due

    @property
    def failed(self) -> int:
        return self.failures.total()

    def report(self, error: "KafkaError | None", message: "Message") -> None:
        if error is None:
            self.delivered += 1
            self.delivered_bytes += len(message)
            offset = message.offset()
            if self.scheduled is not None and offset is not None and offset >= 0:  # with acks=0 it is not known
                self.scheduled.append(f"{message.partition()}:{offset}")
        else:
            self.failures[plain_words(error)] += 1


def register(app: typer.Typer) -> None:
    app.command("produce", epilog=EXAMPLES)(produce)


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to.")],
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read this file instead of stdin.")
    ] = None,
    null_delimited: Annotated[
        bool, typer.Option("--null-delimited", "-0", help="Messages end with a zero byte instead of a line break.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="The whole input is one message.")] = False,
    key_delimiter: Annotated[
        str | None,
        typer.Option(
            "--key-delimiter", "-K", metavar="TEXT", help=r"Delimiter between key and value, such as : or \t."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of messages without one.")] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", "-Z", help="Send an empty value as null, a tombstone for compaction.")
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every message; repeatable."),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="Tag of every message; repeatable.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Write to this partition, regardless of the key.")
    ] = None,
    acks: Annotated[Acks, typer.Option("--acks", help="Acknowledgements to wait for.")] = Acks.ALL,
    compression: Annotated[Compression, typer.Option("--compression", "-z", help="Codec.")] = Compression.NONE,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="Timestamp of every message: ISO, epoch ms, or -2h."),
    ] = None,
    delay: DelayOption = None,
    at: AtOption = None,
    cron: CronOption = None,
    tz: ZoneOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to retry a message.")
    ] = 30,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Write messages: each line of the input is one message.

    With --delay, --at or --cron the topic (which needs headrace.delay.enable) keeps them back until they are due, and
    their ids are printed, for `headrace schedule`.

    Keys are partitioned as in the Java client. The number of delivered messages is printed to stderr; the exit code is
    0 only if all were delivered. Ctrl-C stops reading, and delivers the messages already read.
    """
    if whole and null_delimited:
        raise typer.BadParameter("give only one of --whole and --null-delimited")
    splitting = Splitting(
        delimiter=None if whole else b"\0" if null_delimited else b"\n",
        key_delimiter=unescape(key_delimiter).encode() if key_delimiter else None,
        fixed_key=key.encode() if key is not None else None,
        empty_is_null=tombstones,
    )
    target: dict[str, Any] = {"topic": topic}
    timing = timing_headers(delay, at, cron, tz)
    headers = [*header_pairs(header or []), *((TAG_HEADER, name.encode()) for name in tag or []), *timing]
    if headers:
        target["headers"] = headers
    if partition is not None:
        target["partition"] = partition
    if timestamp is not None:
        target["timestamp"] = parse_moment(timestamp, now_ms())
    settings = {
        "acks": acks.value,
        "enable.idempotence": acks is Acks.ALL,
        "compression.type": compression.value,
        "partitioner": "murmur2_random",
        "message.timeout.ms": round(timeout * 1000),
        "message.max.bytes": LARGEST_MESSAGE_BYTES,
        "linger.ms": 5,
    }
    delivery = Delivery()
    delivery.scheduled = [] if timing else None
    with open_input(file) as descriptor, stop_on_signals() as stop:
        producer = open_producer(broker, topic, partition, settings, delayed=bool(timing))
        with progress(file, delivery) as show:
            for content in split_messages(read_chunks(descriptor, stop), splitting.delimiter, stop):
                if content is not None:
                    message_key, value = split_key(content, splitting)
                    hand_over(producer, {**target, "key": message_key, "value": value}, delivery)
                if content is None or len(producer) % POLL_EVERY == 0:
                    producer.poll(0)
                    show()
            drain(producer, show, timeout)
    finish(topic, delivery, as_json, stop)


def header_pairs(headers: list[str]) -> Iterator[tuple[str, bytes]]:
    """Headers in the given order; unlike settings, a name may be repeated."""
    for header in headers:
        for name, value in parse_pairs([header], "header").items():
            yield name, value.encode()


@contextmanager
def open_input(file: Path | None) -> Iterator[int]:
    if file is None:
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}") from None
    try:
        if file.is_dir():
            raise Failure(f"cannot read {file}: it is a folder, give a file")
        yield descriptor
    finally:
        os.close(descriptor)


def open_producer(
    broker: str, topic: str, partition: int | None, settings: dict[str, Any], delayed: bool = False
) -> "Producer":
    """A producer whose topic exists, and keeps delayed messages back if there will be some.

    A broker with auto.create.topics.enable creates a topic when asked by name.
    """
    admin = open_admin(broker)
    from confluent_kafka import Producer

    producer = Producer(client_settings(broker, settings))
    known = admin.list_topics(timeout=5).topics.get(topic)
    if known is None:
        for _ in range(10):
            producer.list_topics(topic, timeout=5)
            if topic in topic_names(admin):
                break
            producer.poll(0.1)
        else:
            raise Failure(f"topic {topic} does not exist: create it with `headrace topic create {topic}`")
    elif partition is not None and partition not in known.partitions:
        raise Failure(f"topic {topic} has no partition {partition}: it has 0 to {len(known.partitions) - 1}")
    if delayed:
        from headrace.sdk.delayed_topics import require_delays

        require_delays(admin, broker, topic)
    return producer


def hand_over(producer: "Producer", message: dict[str, Any], delivery: Delivery) -> None:
    """Queue one message, waiting while the queue is full: it drains, as every message is delivered or times out."""
    from confluent_kafka import KafkaException

    while True:
        try:
            producer.produce(**message, on_delivery=delivery.report)
            return
        except BufferError:
            producer.poll(0.2)
        except KafkaException as error:
            delivery.failures[reason_of(error)] += 1
            return


def drain(producer: "Producer", show: Callable[[], None], timeout_s: float) -> None:
    """Wait for the delivery report of each message, which the client gives within `timeout_s`."""
    for _ in range(int(timeout_s * 10) + 100):
        if producer.flush(0.1) == 0:
            break
        show()
    show()


@contextmanager
def progress(file: Path | None, delivery: Delivery) -> Iterator[Callable[[], None]]:
    """A live count on stderr, if that is a terminal and stdin is not."""
    if not sys.stderr.isatty() or (file is None and sys.stdin.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} delivered"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda: bar.update(task, completed=delivery.delivered)


def finish(topic: str, delivery: Delivery, as_json: bool, stop: Stop) -> None:
    if as_json:
        print_json(
            {
                "topic": topic,
                "delivered": delivery.delivered,
                "failed": delivery.failed,
                "bytes": delivery.delivered_bytes,
                "errors": dict(delivery.failures),
                **({} if delivery.scheduled is None else {"scheduled": delivery.scheduled}),
            }
        )
    elif delivery.scheduled is not None:
        for where in delivery.scheduled:
            typer.echo(where)
        remark(f"scheduled {plural(delivery.delivered, 'message')} in {topic}")
    else:
        remark(f"delivered {plural(delivery.delivered, 'message')} to {topic}")
    for reason, count in delivery.failures.items():
        remark(f"headrace: {plural(count, 'message')} not delivered to {topic}: {reason}")
    if delivery.failures:
        raise typer.Exit(1)
    if stop.signal_number is not None:
        raise typer.Exit(128 + stop.signal_number)
