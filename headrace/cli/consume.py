"""`headrace consume`: prints messages of topics to stdout.

Called by main. It reads either without a group (manual assignment, no commits) or as a member of a group (with
commits). Invariant: an offset is committed only after its message was written to stdout, so a group prints every
message at least once.
"""

import select
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connection import client_settings, open_admin, plain_words
from headrace.cli.message_text import Renderer, json_line, parse_format
from headrace.cli.moments import now_ms
from headrace.cli.options import DEFAULT_BROKER, BrokerOption, examples
from headrace.cli.places import LogPosition, parse_place, resolve_place
from headrace.cli.screen import remark
from headrace.cli.stopping import Stop, stop_on_signals
from headrace.cli.topics import Partition, describe_topics, end_offsets, matching_topics, partitions_of
from headrace.cli.view import parse_filter
from headrace.model.failure import Failure
from headrace.model.tag_filter import MATCHES

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, KafkaError, Message

    from headrace.cli.admin_nouns import AdminClient

EXAMPLES = examples(
    "headrace consume orders",
    "headrace consume orders --exit --format '%p %o %k: %s\\n'",
    "headrace consume orders --from time:-2h -n 10 --json",
    "headrace consume orders --from offset:-5 --partition 0 --exit",
    "headrace consume orders --tag urgent --exit",
    "headrace consume '^orders-.*' --group billing",
)
BATCH_MESSAGES = 500
LOOK_S = 0.2  # how long to wait for messages before checking the stop flag again


class Isolation(StrEnum):
    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"


class Ends:
    """For `--exit`: which partitions still have messages to print.

    Without a group, the goal is the end offset of each log at the start, so that the command ends although producers
    continue. In a group partitions are reassigned, so there the goal is the end of log that the client reports for
    each.
    """

    def __init__(self, goals: dict[Partition, int] | None) -> None:
        self.goals = goals
        self.open: set[Partition] | None = None if goals is None else set(goals)

    def assign(self, partitions: set[Partition]) -> None:
        self.open = partitions

    def revoke(self) -> None:
        """Between two assignments it is not known what is left to read, so the end is not reached."""
        self.open = None

    def pass_message(self, partition: Partition, offset: int) -> None:
        if self.goals is not None and partition in self.goals and offset + 1 >= self.goals[partition]:
            self.reach_end(partition)

    def reach_end(self, partition: Partition) -> None:
        if self.open is not None:
            self.open.discard(partition)

    @property
    def reached(self) -> bool:
        return self.open is not None and not self.open


class Reader:
    """One run of the command: reads, prints, and in a group commits."""

    def __init__(
        self,
        consumer: "Consumer",
        render: Renderer,
        ends: Ends | None,
        committing: bool,
        keeps: "Callable[[Message], bool] | None" = None,
    ) -> None:
        """`keeps`: whether a message is printed; by default all are."""
        self.consumer = consumer
        self.render = render
        self.ends = ends
        self.committing = committing
        self.keeps = keeps

    def run(self, stop: Stop, count: int | None) -> None:
        printed = 0
        while not stop.asked and (count is None or printed < count):
            if self.ends is not None and self.ends.reached:
                return
            wanted = BATCH_MESSAGES if count is None else min(BATCH_MESSAGES, count - printed)
            batch = self.next_batch(wanted)
            if not batch:
                if reader_left():
                    raise BrokenPipeError
                continue
            printed += self.print_batch(batch)

    def next_batch(self, wanted: int) -> "list[Message]":
        """Up to `wanted` messages that are available; waits a moment for the first one."""
        first = self.consumer.poll(LOOK_S)
        if first is None:
            return []
        return [first, *self.consumer.consume(wanted - 1, 0)] if wanted > 1 else [first]

    def print_batch(self, batch: "list[Message]") -> int:
        """Write and flush the batch, then commit it. End-of-partition events count as read, not as printed."""
        texts: list[bytes] = []
        positions: dict[Partition, int] = {}
        for message in batch:
            partition = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None:
                self.meet_error(error, partition)
                continue
            if self.keeps is None or self.keeps(message):
                texts.append(self.render(message))
            offset = message.offset() or 0
            positions[partition] = offset + 1
            if self.ends is not None:
                self.ends.pass_message(partition, offset)
        sys.stdout.buffer.write(b"".join(texts))
        sys.stdout.buffer.flush()
        if self.committing and positions:
            self.commit(positions)
        return len(texts)

    def meet_error(self, error: "KafkaError", partition: Partition) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF:
            if self.ends is not None:
                self.ends.reach_end(partition)
        elif not error.retriable():
            raise Failure(f"cannot read {partition[0]}: {plain_words(error)}")

    def commit(self, positions: dict[Partition, int]) -> None:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        moved_on = (
            KafkaError.ILLEGAL_GENERATION,
            KafkaError.UNKNOWN_MEMBER_ID,
            KafkaError.GROUP_ID_NOT_FOUND,
            KafkaError.REBALANCE_IN_PROGRESS,
        )
        try:
            offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()]
            self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in moved_on:
                raise
            # The partitions were reassigned; their new owner prints these messages again: at least once.


def reader_left() -> bool:
    """Whether stdout is a pipe closed by its reader, which an idle `consume | head` would not notice otherwise."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def register(app: typer.Typer) -> None:
    app.command("consume", epilog=EXAMPLES)(consume)


def consume(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC", help="Topics to read; a name that starts with ^ is a regular expression."),
    ],
    *,
    start: Annotated[
        str, typer.Option("--from", "-o", metavar="PLACE", help="start, end, offset:N (-N: from the end) or time:T.")
    ] = "start",
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this many messages.")] = None,
    until_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end of the topics.")] = False,
    template: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help=r"%t %p %o %k %s %T %h %S %K %% and \n \t.")
    ] = r"%s\n",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this group and commit its offsets.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", "-t", metavar="TAG", help="Only messages with this tag; repeatable, see --match."),
    ] = None,
    match: Annotated[
        str, typer.Option("--match", help=f"With --tag: messages with {', '.join(MATCHES)} of the tags.")
    ] = "any",
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="Which messages of transactions to print.")
    ] = Isolation.UNCOMMITTED,
    broker: BrokerOption = DEFAULT_BROKER,
) -> None:
    """Print messages until Ctrl-C, a count (--count), or the end of the topics (--exit).

    \b
    Fields of --format:
      %t topic      %p partition    %o offset
      %k key        %s value        %h headers
      %K key bytes  %S value bytes  %T timestamp (epoch ms)

    A time is ISO 8601, epoch milliseconds, or a duration before now such as -2h. In a group, --from applies only to
    partitions without a committed offset; `headrace group seek` changes a group's offsets. With --tag, a topic that has
    headrace.tags.enable is filtered by the broker, through a view; any other is filtered here.
    """
    place = parse_place(start, now_ms())
    if group is not None and (partition is not None or place.kind not in ("start", "end")):
        raise typer.BadParameter(
            "a group reads all partitions, and starts at its committed offsets: "
            "use --group without --partition, and change its offsets with `headrace group seek`"
        )
    render = json_line if as_json else parse_format(template)
    admin = open_admin(broker)
    names = matching_topics(admin, topics)
    describe_topics(admin, names)
    if tag:
        keeps, topics = filtered(broker, topics, tag, match)
        names = topics
    else:
        keeps = None
    settings = {
        "group.id": group or "headrace-cli",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": until_end,
        "auto.offset.reset": "latest" if place.kind == "end" else "earliest",
        "isolation.level": isolation.value,
        "error_cb": warn_once(broker),
    }
    from confluent_kafka import Consumer

    consumer = Consumer(client_settings(broker, settings))
    with stop_on_signals() as stop:
        try:
            if group is None:
                ends = assign(admin, consumer, place, partitions_of(admin, names, partition), isolation)
            else:
                ends = subscribe(consumer, topics)
            Reader(consumer, render, ends if until_end else None, group is not None, keeps).run(stop, count)
        finally:
            consumer.close()


def filtered(
    broker: str, topics: list[str], tags: list[str], match: str
) -> "tuple[Callable[[Message], bool] | None, list[str]]":
    """What to read for these tags: the topics' views, where the broker filters. Otherwise also which messages match."""
    from headrace.sdk.tag_view import shared_view, tags_of

    if any(topic.startswith("^") for topic in topics):
        raise typer.BadParameter("--tag needs topics by name: a pattern matches views as well")
    filter_ = parse_filter(tags, match)
    found = {topic: shared_view(client_settings(broker), topic, filter_) for topic in dict.fromkeys(topics)}
    places = [view or topic for topic, view in found.items()]
    if all(found.values()):
        return None, places
    return lambda message: filter_.accepts(tags_of(message.headers())), places


def assign(
    admin: "AdminClient", consumer: "Consumer", place: LogPosition, partitions: list[Partition], isolation: Isolation
) -> Ends:
    """Read the partitions without a group, starting at the place."""
    from confluent_kafka import IsolationLevel, TopicPartition

    level = IsolationLevel.READ_COMMITTED if isolation is Isolation.COMMITTED else IsolationLevel.READ_UNCOMMITTED
    goals = end_offsets(admin, partitions, level)
    starts = resolve_place(admin, place, partitions)
    consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in starts.items()])
    return Ends({partition: goal for partition, goal in goals.items() if goal > starts[partition]})


def subscribe(consumer: "Consumer", topics: list[str]) -> Ends:
    """Read as a member of a group; the client subscribes to new topics that match a pattern by itself."""
    ends = Ends(None)
    consumer.subscribe(
        topics,
        on_assign=lambda _, partitions: ends.assign({(where.topic, where.partition) for where in partitions}),
        on_revoke=lambda *_: ends.revoke(),
    )
    return ends


def warn_once(broker: str) -> Any:
    """An error callback that reports a lost broker once; the client keeps reconnecting."""
    said = False

    def warn(error: "KafkaError") -> None:
        from confluent_kafka import KafkaError

        nonlocal said
        if error.code() == KafkaError._ALL_BROKERS_DOWN and not said:
            said = True
            remark(f"headrace: lost the connection to the broker at {broker}, reconnecting (Ctrl-C stops)")

    return warn
