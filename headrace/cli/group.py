"""`headrace group`: list, describe and delete groups, and change the offsets of consumer groups.

Called by main. Invariant: offsets of a group with members are never changed or deleted; the command fails with one line
that names them.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import share
from headrace.cli.connection import REQUEST_TIMEOUT_S, open_admin, settle
from headrace.cli.groups import (
    commit_offsets,
    committed_offsets,
    delete_groups,
    find_group,
    missing_group,
    state_name,
)
from headrace.cli.lag import measure_lag
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
from headrace.cli.places import parse_place, resolve_place
from headrace.cli.screen import plural, print_facts, print_json, print_table, remark
from headrace.cli.share import share_requests
from headrace.cli.topics import Partition, partitions_of, topic_names
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from headrace.cli.admin_nouns import AdminClient, ConsumerGroupDescription

app = command_group(
    "Show consumer groups, change their offsets, delete them.",
    "headrace group list",
    "headrace group describe billing",
    "headrace group seek billing --to time:-2h --dry-run",
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP", help="Names of groups.")]


@app.command("list", epilog=examples("headrace group list", "headrace group list --json"))
def list_groups(broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """List all groups: consumer groups of both protocols, and share groups."""
    admin = open_admin(broker)
    answer = settle(admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), "cannot list groups")
    if answer.errors:
        raise Failure(f"cannot list all groups: {answer.errors[0]}")
    rows = [
        {"group": group.group_id, "state": state_name(group.state), "type": state_name(group.type)}
        for group in answer.valid
    ]
    with share_requests(broker) as requests:
        rows += [{"group": group.name, "state": group.state, "type": "share"} for group in requests.listed()]
    rows = sorted({str(row["group"]): row for row in rows}.values(), key=lambda row: str(row["group"]))
    if as_json:
        print_json(rows)
    elif rows:
        print_table(["group", "state", "type"], [list(row.values()) for row in rows])
    else:
        remark("no groups yet: create one with `headrace consume TOPIC --group NAME`")


@app.command(epilog=examples("headrace group describe billing", "headrace group describe billing --json"))
def describe(groups: GroupsArgument, broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show a group's state, its members with hosts and partitions, and its lag in messages and in time.

    The lag in time is the age of the first message without a committed offset.
    """
    admin = open_admin(broker)
    documents = [any_document(admin, broker, name) for name in dict.fromkeys(groups)]
    if as_json:
        print_json(documents)
        return
    for document in documents:
        if document.get("type") == "share":
            share.print_group(document)
        else:
            print_group(document)


def any_document(admin: "AdminClient", broker: str, name: str) -> dict[str, Any]:
    """A group of any type."""
    group = find_group(admin, name)
    if group is not None:
        return group_document(admin, broker, group)
    with share_requests(broker) as requests:
        shared = requests.find(name)
        if shared is None:
            raise Failure(missing_group(name))
        return share.group_document(requests, shared)


def group_document(admin: "AdminClient", broker: str, group: "ConsumerGroupDescription") -> dict[str, Any]:
    """A group with its members, and its assigned and committed partitions with their lag."""
    owners: dict[Partition, str] = {
        (where.topic, where.partition): member.member_id
        for member in group.members
        for where in member.assignment.topic_partitions
    }
    committed: dict[Partition, int | None] = {**dict.fromkeys(owners), **committed_offsets(admin, group.group_id)}
    topics = set(topic_names(admin))
    alive = {partition: offset for partition, offset in committed.items() if partition[0] in topics}
    lags = measure_lag(admin, broker, alive, now_ms())
    return {
        "group": group.group_id,
        "state": state_name(group.state),
        "protocol": group.partition_assignor or None,
        "coordinator": f"{group.coordinator.host}:{group.coordinator.port}" if group.coordinator else None,
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "instance": member.group_instance_id,
                "host": member.host,
                "partitions": sorted(
                    f"{where.topic}:{where.partition}" for where in member.assignment.topic_partitions
                ),
            }
            for member in sorted(group.members, key=lambda member: str(member.member_id))
        ],
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "committed": lag.committed,
                "end": lag.end,
                "lag": lag.messages,
                "lag_seconds": lag.seconds,
                "member": owners.get((topic, number)),
            }
            for (topic, number), lag in sorted(lags.items())
        ],
        "lag": sum(lag.messages or 0 for lag in lags.values()),
        "lag_seconds": max((lag.seconds for lag in lags.values() if lag.seconds is not None), default=None),
    }


def print_group(document: dict[str, Any]) -> None:
    span = None if document["lag_seconds"] is None else describe_span(document["lag_seconds"])
    print_facts(
        [
            ("group", document["group"]),
            ("state", document["state"]),
            ("protocol", document["protocol"]),
            ("coordinator", document["coordinator"]),
            ("lag", f"{plural(document['lag'], 'message')}, {span or 'unknown'} behind"),
        ]
    )
    if document["members"]:
        typer.echo()
        print_table(
            ["member", "client", "host", "partitions"],
            [(row["member"], row["client"], row["host"], " ".join(row["partitions"])) for row in document["members"]],
        )
    if document["partitions"]:
        typer.echo()
        print_table(
            ["topic", "partition", "committed", "end", "lag", "behind", "member"],
            [
                (
                    row["topic"],
                    row["partition"],
                    row["committed"],
                    row["end"],
                    row["lag"],
                    None if row["lag_seconds"] is None else describe_span(row["lag_seconds"]),
                    row["member"],
                )
                for row in document["partitions"]
            ],
            right=["partition", "committed", "end", "lag", "behind"],
        )


@app.command(
    epilog=examples(
        "headrace group seek billing --to start",
        "headrace group seek billing --topic orders:0 --to offset:42",
        "headrace group seek billing --topic orders --to time:2025-01-31T12:00:00Z",
        "headrace group seek billing --to shift:-10 --dry-run",
    )
)
def seek(
    group: GroupArgument,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="start, end, offset:N, time:T, or shift:N (-N: back).")
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION]",
            help="Topic or partition to change; default: all with offsets.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the new offsets, but change nothing.")] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Change the offsets of a group without members.

    Creates the group if it does not exist, which needs --topic.
    """
    place = parse_place(to, now_ms(), shift_allowed=True)
    wanted = [parse_topic_partition(text) for text in topic or []]
    admin = open_admin(broker)
    found = find_group(admin, group)
    if found is None:
        with share_requests(broker) as requests:
            if requests.find(group) is not None:
                raise Failure(f"group {group} is a share group: use `headrace share seek`")
    if found is None and not wanted:
        raise Failure(f"{missing_group(group)}; to create it, name its topics with --topic")
    if found is not None and found.members:
        raise Failure(
            f"group {group} is {state_name(found.state)} with {plural(len(found.members), 'member')}: "
            "stop its consumers first, because they would overwrite the new offsets"
        )
    current = committed_offsets(admin, group) if found is not None else {}
    partitions = [part for name, number in wanted for part in partitions_of(admin, [name], number)] or sorted(current)
    if not partitions:
        raise Failure(f"group {group} has no offsets: name its topics with --topic")
    target = resolve_place(admin, place, dict.fromkeys(partitions), current)
    if not dry_run:
        commit_offsets(admin, group, target)
    rows = [
        {"topic": name, "partition": number, "from": current.get((name, number)), "to": offset}
        for (name, number), offset in sorted(target.items())
    ]
    if as_json:
        print_json({"group": group, "dry_run": dry_run, "partitions": rows})
        return
    print_table(["topic", "partition", "from", "to"], [list(row.values()) for row in rows], ["partition", "from", "to"])
    if dry_run:
        remark("dry run: nothing was changed")


@app.command(epilog=examples("headrace group delete billing", "headrace group delete billing audit --yes"))
def delete(
    groups: GroupsArgument, yes: YesOption = False, broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False
) -> None:
    """Delete groups without members, and their offsets. Groups of all types."""
    admin = open_admin(broker)
    names = list(dict.fromkeys(groups))
    for name in names:
        count = member_count(admin, broker, name)
        if count:
            raise Failure(f"group {name} has {plural(count, 'member')}: stop its consumers first")
    if not yes:
        typer.confirm(f"Delete {', '.join(names)} and all offsets?", abort=True, err=True)
    delete_groups(admin, names)
    if as_json:
        print_json({"deleted": names})
    else:
        typer.echo(f"deleted {', '.join(names)}")


def member_count(admin: "AdminClient", broker: str, name: str) -> int:
    """Of a group of any type."""
    group = find_group(admin, name)
    if group is not None:
        return len(group.members)
    with share_requests(broker) as requests:
        shared = requests.find(name)
    if shared is None:
        raise Failure(missing_group(name))
    return len(shared.members)
