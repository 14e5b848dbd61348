"""`headrace transaction`: list, describe and abort transactions, also hanging ones.

Called by main. Invariant: a transaction known to its coordinator is aborted through the coordinator, in all partitions;
only a hanging one is aborted by a marker in a single partition.
"""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.moments import describe_span, now_ms
from headrace.cli.options import (
    DEFAULT_BROKER,
    BrokerOption,
    JsonOption,
    YesOption,
    command_group,
    examples,
    parse_topic_partition,
)
from headrace.cli.screen import plural, print_facts, print_json, print_table, remark
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from headrace.cli.direct_requests import DirectRequests
    from headrace.cli.topics import Partition
    from headrace.cli.transactions import HeldTransaction, KnownTransaction

app = command_group(
    "Show transactions, find hanging ones, abort them.",
    "headrace transaction list",
    "headrace transaction list --hanging",
    "headrace transaction abort --at orders:0",
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Transactional id.")]


@app.command("list", epilog=examples("headrace transaction list", "headrace transaction list --hanging --json"))
def list_transactions(
    hanging: Annotated[
        bool, typer.Option("--hanging", help="Transactions open in a partition but unknown to their coordinator.")
    ] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """List transactional ids, with the state of their transactions."""
    from headrace.cli.direct_requests import DirectRequests
    from headrace.cli.transactions import hanging_transactions, known_transactions

    with DirectRequests(broker) as brokers:
        if hanging:
            show_hanging(hanging_transactions(brokers, lambda _: True), as_json)
            return
        rows = [known_document(known) for known in known_transactions(brokers)]
    if as_json:
        print_json(rows)
    elif rows:
        columns = ["id", "state", "producer", "epoch", "open for", "partitions"]
        print_table(
            columns,
            [
                (
                    row["id"],
                    row["state"],
                    row["producer"],
                    row["epoch"],
                    span(row["open_seconds"]),
                    len(row["partitions"]),
                )
                for row in rows
            ],
            right=columns[2:],
        )
    else:
        remark("no transactions yet: a producer with a transactional.id creates them")


def show_hanging(found: "list[HeldTransaction]", as_json: bool) -> None:
    if as_json:
        print_json([held_document(held) for held in found])
    elif found:
        columns = ["topic", "partition", "producer", "epoch", "first offset", "silent for"]
        rows = [
            (held.topic, held.partition, held.producer_id, held.epoch, held.first_offset, span(silent_s(held)))
            for held in found
        ]
        print_table(columns, rows, right=columns[1:])
        remark("abort one with `headrace transaction abort --at TOPIC:PARTITION`")
    else:
        remark("no hanging transactions")


@app.command(
    epilog=examples("headrace transaction describe billing-1", "headrace transaction describe billing-1 --json")
)
def describe(transactional_id: IdArgument, broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show a transactional id: its producer, the state of its transaction, and the partitions in it."""
    from headrace.cli.direct_requests import DirectRequests
    from headrace.cli.transactions import held_transactions

    with DirectRequests(broker) as brokers:
        known = existing(brokers, transactional_id)
        held = held_transactions(brokers, known.partitions.__contains__) if known.in_progress else []
    firsts = {(each.topic, each.partition): each.first_offset for each in held if each.producer_id == known.producer_id}
    document = known_document(known) | {"timeout_ms": known.timeout_ms}
    document["partitions"] = [
        {"topic": topic, "partition": index, "first_offset": firsts.get((topic, index))}
        for topic, index in sorted(known.partitions)
    ]
    if as_json:
        print_json(document)
        return
    print_facts(
        [
            ("id", document["id"]),
            ("state", document["state"]),
            ("producer", f"{document['producer']}, epoch {document['epoch']}"),
            ("open for", span(document["open_seconds"])),
            ("timeout", describe_span(known.timeout_ms / 1000)),
        ]
    )
    if known.partitions:
        typer.echo()
        rows = [list(row.values()) for row in document["partitions"]]
        print_table(["topic", "partition", "first offset"], rows, right=["partition", "first offset"])


@app.command(
    epilog=examples(
        "headrace transaction abort billing-1",
        "headrace transaction abort --at orders:0",
        "headrace transaction abort --at orders:0 --producer 1042 --yes",
    )
)
def abort(
    transactional_id: Annotated[str, typer.Argument(metavar="[ID]", help="Transactional id.")] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="TOPIC:PARTITION", help="Abort a hanging transaction in this partition.")
    ] = "",
    producer: Annotated[int, typer.Option("--producer", help="With --at: only that of this producer id.")] = -1,
    yes: YesOption = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Abort the open transaction of a transactional id, or a hanging one in a partition.

    With an ID the coordinator aborts it in all partitions, and fences its producer. With --at an abort marker is
    written for the hanging transactions in that partition; one that its coordinator knows is not touched.
    """
    if bool(transactional_id) == bool(at):
        raise typer.BadParameter("give either ID or --at TOPIC:PARTITION")
    from headrace.cli.direct_requests import DirectRequests

    with DirectRequests(broker) as brokers:
        if transactional_id:
            done: dict[str, Any] = abort_known(brokers, transactional_id, yes)
            told = f"aborted the transaction of {transactional_id}"
        else:
            topic, index = parse_topic_partition(at)
            if index is None:
                raise typer.BadParameter(f"{at!r} is not TOPIC:PARTITION, such as orders:0")
            ended = abort_hanging(brokers, (topic, index), producer, yes)
            done = {"aborted": [held_document(held) for held in ended]}
            told = f"ended {plural(len(ended), 'transaction')} in {topic} partition {index}"
    if as_json:
        print_json(done)
    else:
        typer.echo(told)


def abort_known(brokers: "DirectRequests", transactional_id: str, yes: bool) -> dict[str, Any]:
    from headrace.cli.transactions import fence

    known = existing(brokers, transactional_id)
    if not known.in_progress:
        raise Failure(f"{transactional_id} has no open transaction, its last one is {known.state}")
    if not yes:
        typer.confirm(f"Abort the transaction of {transactional_id} and fence its producer?", abort=True, err=True)
    fence(brokers, known, time.sleep)
    return {"aborted": transactional_id}


def abort_hanging(
    brokers: "DirectRequests", where: "Partition", producer_id: int, yes: bool
) -> "list[HeldTransaction]":
    from headrace.cli.transactions import end_hanging, hanging_transactions

    hanging = [held for held in hanging_transactions(brokers, where.__eq__) if producer_id in (-1, held.producer_id)]
    if not hanging:
        whose = "" if producer_id < 0 else f" of producer {producer_id}"
        raise Failure(
            f"no hanging transaction{whose} in {where[0]} partition {where[1]}; "
            "`headrace transaction list` shows those known to coordinators, abort them by their id"
        )
    if not yes:
        first = ", ".join(f"producer {held.producer_id} from offset {held.first_offset} on" for held in hanging)
        typer.confirm(f"Abort in {where[0]} partition {where[1]}: {first}?", abort=True, err=True)
    end_hanging(brokers, hanging)
    return hanging


def existing(brokers: "DirectRequests", transactional_id: str) -> "KnownTransaction":
    from headrace.cli.transactions import known_transaction

    known = known_transaction(brokers, transactional_id)
    if known is None:
        raise Failure(
            f"transactional id {transactional_id} is not known: `headrace transaction list` shows those that are"
        )
    return known


def known_document(known: "KnownTransaction") -> dict[str, Any]:
    opened = known.in_progress and known.start_ms >= 0
    return {
        "id": known.transactional_id,
        "state": known.state,
        "producer": known.producer_id,
        "epoch": known.epoch,
        "open_seconds": max(0, now_ms() - known.start_ms) / 1000 if opened else None,
        "partitions": [f"{topic}:{index}" for topic, index in sorted(known.partitions)],
    }


def held_document(held: "HeldTransaction") -> dict[str, Any]:
    return {
        "topic": held.topic,
        "partition": held.partition,
        "producer": held.producer_id,
        "epoch": held.epoch,
        "first_offset": held.first_offset,
        "silent_seconds": silent_s(held),
    }


def silent_s(held: "HeldTransaction") -> float:
    return max(0, now_ms() - held.last_ms) / 1000


def span(seconds: float | None) -> str | None:
    return None if seconds is None else describe_span(seconds)
