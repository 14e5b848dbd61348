"""`headrace share`: list, describe, seek and delete share groups.

Called by main, and by `headrace group`, which knows groups of all types. Invariant: nothing of a group with members is
changed or deleted; the command fails with one line that says so.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.moments import now_ms
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
    from headrace.cli.share_groups import ShareGroup, ShareRequests

app = command_group(
    "Show share groups, change where they start, delete them.",
    "headrace share list",
    "headrace share describe workers",
    "headrace share seek workers --topic orders --to time:-2h --dry-run",
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the share group.")]
GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP", help="Names of share groups.")]


@contextmanager
def share_requests(broker: str) -> Iterator["ShareRequests"]:
    from headrace.cli.direct_requests import DirectRequests
    from headrace.cli.share_groups import ShareRequests

    with DirectRequests(broker) as brokers:
        yield ShareRequests(brokers, time.sleep)


def existing(requests: "ShareRequests", name: str) -> "ShareGroup":
    group = requests.find(name)
    if group is None:
        raise Failure(f"share group {name} does not exist: `headrace share list` shows those that do")
    return group


def check_empty(group: "ShareGroup") -> None:
    if group.members:
        raise Failure(f"share group {group.name} has {plural(len(group.members), 'member')}: stop them first")


@app.command("list", epilog=examples("headrace share list", "headrace share list --json"))
def list_groups(broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """List all share groups."""
    with share_requests(broker) as requests:
        rows = [{"group": group.name, "state": group.state} for group in requests.listed()]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(["group", "state"], [list(row.values()) for row in rows])
    else:
        remark("no share groups yet: the first share consumer of a group creates it")


@app.command(epilog=examples("headrace share describe workers", "headrace share describe workers --json"))
def describe(groups: GroupsArgument, broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show a share group's state, its members with their partitions, where it starts, and its lag.

    The lag is the number of messages that are neither acknowledged nor given up.
    """
    with share_requests(broker) as requests:
        documents = [group_document(requests, existing(requests, name)) for name in dict.fromkeys(groups)]
    if as_json:
        print_json(documents)
        return
    for document in documents:
        print_group(document)


def group_document(requests: "ShareRequests", group: "ShareGroup") -> dict[str, Any]:
    starts = requests.starts(group.name)
    lags = [found.lag for found in starts.values()]
    return {
        "group": group.name,
        "type": "share",
        "state": group.state,
        "epoch": group.epoch,
        "coordinator": f"{group.coordinator[0]}:{group.coordinator[1]}",
        "members": [
            {
                "member": member.id,
                "client": member.client,
                "host": member.host,
                "epoch": member.epoch,
                "topics": list(member.topics),
                "partitions": [f"{topic}:{number}" for topic, number in member.partitions],
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "start": found.start,
                "lag": found.lag,
                "members": sum((topic, number) in member.partitions for member in group.members),
            }
            for (topic, number), found in sorted(starts.items())
        ],
        "lag": None if None in lags else sum(lag or 0 for lag in lags),
    }


def print_group(document: dict[str, Any]) -> None:
    lag = document["lag"]
    facts = [(name, document[name]) for name in ("group", "type", "state", "coordinator")]
    print_facts([*facts, ("lag", "unknown" if lag is None else plural(lag, "message"))])
    if document["members"]:
        typer.echo()
        print_table(
            ["member", "client", "host", "partitions"],
            [(row["member"], row["client"], row["host"], " ".join(row["partitions"])) for row in document["members"]],
        )
    if document["partitions"]:
        typer.echo()
        columns = ["topic", "partition", "start", "lag", "members"]
        print_table(columns, [list(row.values()) for row in document["partitions"]], right=columns[1:])


@app.command(
    epilog=examples(
        "headrace share seek workers --topic orders --to start",
        "headrace share seek workers --topic orders:0 --to offset:42",
        "headrace share seek workers --to time:2025-01-31T12:00:00Z --dry-run",
    )
)
def seek(
    group: GroupArgument,
    *,
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help="start, end, offset:N or time:T.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:PARTITION]", help="Topic or partition to change; default: all it knows."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the new offsets, but change nothing.")] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Change where a share group without members starts; what it knew of the messages there is forgotten."""
    from headrace.cli.connection import open_admin
    from headrace.cli.places import parse_place, resolve_place
    from headrace.cli.topics import partitions_of

    place = parse_place(to, now_ms())
    wanted = [parse_topic_partition(text) for text in topic or []]
    admin = open_admin(broker)
    with share_requests(broker) as requests:
        check_empty(existing(requests, group))
        current = requests.starts(group)
        partitions = [part for name, number in wanted for part in partitions_of(admin, [name], number)]
        partitions = partitions or sorted(current)
        if not partitions:
            raise Failure(f"share group {group} has read no topic yet: name topics with --topic")
        target = resolve_place(admin, place, dict.fromkeys(partitions))
        if not dry_run:
            requests.seek(group, target)
    rows = [
        {
            "topic": name,
            "partition": number,
            "from": current[name, number].start if (name, number) in current else None,
            "to": offset,
        }
        for (name, number), offset in sorted(target.items())
    ]
    if as_json:
        print_json({"group": group, "dry_run": dry_run, "partitions": rows})
        return
    print_table(["topic", "partition", "from", "to"], [list(row.values()) for row in rows], ["partition", "from", "to"])
    if dry_run:
        remark("dry run: nothing was changed")


@app.command(epilog=examples("headrace share delete workers", "headrace share delete workers --topic orders --yes"))
def delete(
    group: GroupArgument,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Forget only these topics, and keep the group."),
    ] = None,
    yes: YesOption = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Delete a share group without members, or what it knows of topics."""
    with share_requests(broker) as requests:
        check_empty(existing(requests, group))
        what = f"the offsets of {group} in {', '.join(topic)}" if topic else f"{group} and all its offsets"
        if not yes:
            typer.confirm(f"Delete {what}?", abort=True, err=True)
        if topic:
            requests.forget(group, dict.fromkeys(topic))
        else:
            requests.delete(group)
    if as_json:
        print_json({"group": group, "deleted": topic or [group]})
    else:
        typer.echo(f"deleted {what}")
