"""`headrace topic`: create, list, describe, alter, delete and trim topics.

Called by main; uses the Kafka admin API only. Invariant: a command that removes data asks for confirmation (delete), or
needs an explicit option that says how much (trim).
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connection import REQUEST_TIMEOUT_S, open_admin, settle
from headrace.cli.moments import now_ms, parse_moment
from headrace.cli.options import (
    DEFAULT_BROKER,
    BrokerOption,
    ConfigOption,
    JsonOption,
    YesOption,
    command_group,
    examples,
    parse_pairs,
)
from headrace.cli.screen import plural, print_facts, print_json, print_table, remark
from headrace.cli.topics import describe_topics, end_offsets, offsets_at, partitions_of, start_offsets
from headrace.cli.view import views
from headrace.model.failure import Failure
from headrace.model.tag_filter import VIEW_OF

if TYPE_CHECKING:
    from headrace.cli.admin_nouns import AdminClient, ConfigEntry

app = command_group(
    "Create, show, change and delete topics.",
    "headrace topic create orders --partitions 4",
    "headrace topic describe orders",
    "headrace topic trim orders --before-time -7d",
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")]


@app.command(
    epilog=examples(
        "headrace topic create orders",
        "headrace topic create orders --partitions 4 -c retention.ms=86400000",
        "headrace topic create users -c cleanup.policy=compact",
    )
)
def create(
    topics: TopicsArgument,
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Number of partitions; default: the broker's.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="Number of replicas; default: the broker's."),
    ] = None,
    config: ConfigOption = None,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Create topics."""
    settings = parse_pairs(config, "topic setting")
    admin = open_admin(broker)
    from headrace.cli.admin_nouns import NewTopic

    answers = admin.create_topics(
        [NewTopic(name, partitions or -1, replication_factor or -1, config=settings) for name in dict.fromkeys(topics)],
        request_timeout=REQUEST_TIMEOUT_S,
    )
    for name, answer in answers.items():
        settle(answer, f"cannot create topic {name}")
    created = describe_topics(admin, topics)
    if as_json:
        print_json([{"topic": topic.name, "partitions": len(topic.partitions)} for topic in created])
        return
    for topic in created:
        typer.echo(f"created topic {topic.name} with {plural(len(topic.partitions), 'partition')}")


@app.command("list", epilog=examples("headrace topic list", "headrace topic list --internal --json"))
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """List topics with their partition and replica counts."""
    admin = open_admin(broker)
    found = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(found.items())
        if internal or not name.startswith("__")
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            ["topic", "partitions", "replicas"], [list(row.values()) for row in rows], ["partitions", "replicas"]
        )
    else:
        remark("no topics yet: create one with `headrace topic create NAME`")


@app.command(epilog=examples("headrace topic describe orders", "headrace topic describe orders --defaults --json"))
def describe(
    topics: TopicsArgument,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Show every setting, not only the changed ones.")
    ] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Show partitions with leader, replicas and offsets, and the settings that differ from the default."""
    admin = open_admin(broker)
    documents = [topic_document(admin, name, defaults) for name in dict.fromkeys(topics)]
    if as_json:
        print_json(documents)
        return
    for document in documents:
        print_facts([("topic", document["topic"]), ("id", document["id"])])
        for name, value in document["configs"].items():
            typer.echo(f"  {name}={value}")
        print_table(
            ["partition", "leader", "replicas", "isr", "start", "end", "messages"],
            [
                (
                    partition["partition"],
                    partition["leader"],
                    ",".join(map(str, partition["replicas"])),
                    ",".join(map(str, partition["isr"])),
                    partition["start"],
                    partition["end"],
                    None if partition["start"] is None else partition["end"] - partition["start"],
                )
                for partition in document["partitions"]
            ],
            right=["partition", "leader", "start", "end", "messages"],
        )


def topic_document(admin: "AdminClient", name: str, defaults: bool) -> dict[str, Any]:
    """The description of one topic. A partition without a leader has no offsets."""
    topic = describe_topics(admin, [name])[0]
    led = [(name, partition.id) for partition in topic.partitions if partition.leader is not None]
    starts, ends = start_offsets(admin, led), end_offsets(admin, led)
    return {
        "topic": name,
        "id": str(topic.topic_id),
        "internal": bool(topic.is_internal),
        "partitions": [
            {
                "partition": partition.id,
                "leader": partition.leader.id if partition.leader is not None else None,
                "replicas": [node.id for node in partition.replicas],
                "isr": [node.id for node in partition.isr],
                "start": starts.get((name, partition.id)),
                "end": ends.get((name, partition.id)),
            }
            for partition in sorted(topic.partitions, key=lambda partition: partition.id)
        ],
        "configs": {
            setting.name: setting.value
            for setting in sorted(topic_settings(admin, name), key=lambda setting: setting.name)
            if defaults or is_changed(setting)
        },
    }


def topic_settings(admin: "AdminClient", name: str) -> "list[ConfigEntry]":
    from headrace.cli.admin_nouns import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, name)
    answer = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
    return list(settle(answer, f"cannot read the settings of topic {name}").values())


def is_changed(setting: "ConfigEntry") -> bool:
    from headrace.cli.admin_nouns import ConfigSource

    return bool(ConfigSource(setting.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG)


@app.command(
    epilog=examples(
        "headrace topic alter orders -c retention.ms=3600000",
        "headrace topic alter orders --delete-config retention.ms",
        "headrace topic alter orders --partitions 8",
    )
)
def alter(
    topic: TopicArgument,
    *,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Reset a setting to its default; repeatable."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Increase the number of partitions to this.")
    ] = None,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Change settings, or increase the number of partitions."""
    settings = parse_pairs(config, "topic setting")
    if not settings and not delete_config and partitions is None:
        raise typer.BadParameter("nothing to change: give --config, --delete-config or --partitions")
    admin = open_admin(broker)
    describe_topics(admin, [topic])
    if settings or delete_config:
        alter_settings(admin, topic, settings, delete_config or [])
    if partitions is not None:
        from headrace.cli.admin_nouns import NewPartitions

        answer = admin.create_partitions([NewPartitions(topic, partitions)], request_timeout=REQUEST_TIMEOUT_S)[topic]
        settle(answer, f"cannot increase topic {topic} to {plural(partitions, 'partition')}")
    if as_json:
        print_json({"topic": topic, "set": settings, "deleted": delete_config or [], "partitions": partitions})
    else:
        typer.echo(f"altered topic {topic}")


def alter_settings(admin: "AdminClient", topic: str, settings: dict[str, str], deleted: list[str]) -> None:
    from headrace.cli.admin_nouns import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ] + [ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE) for name in deleted]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    answer = admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
    settle(answer, f"cannot alter the settings of topic {topic}")


@app.command(epilog=examples("headrace topic delete orders", "headrace topic delete orders users --yes"))
def delete(
    topics: TopicsArgument,
    yes: YesOption = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Delete topics and all their messages."""
    admin = open_admin(broker)
    names = list(dict.fromkeys(topics))
    describe_topics(admin, names)
    for view, settings in views(admin).items():
        if settings[VIEW_OF] in names and view not in names:
            raise Failure(f"cannot delete topic {settings[VIEW_OF]}: {view} is a view of it, delete that first")
    if not yes:
        typer.confirm(f"Delete {', '.join(names)} and all messages?", abort=True, err=True)
    for name, answer in admin.delete_topics(names, request_timeout=REQUEST_TIMEOUT_S).items():
        settle(answer, f"cannot delete topic {name}")
    if as_json:
        print_json({"deleted": names})
    else:
        typer.echo(f"deleted {', '.join(names)}")


@app.command(
    epilog=examples(
        "headrace topic trim orders --before 1000 --partition 0",
        "headrace topic trim orders --before-time -7d",
        "headrace topic trim orders --all",
    )
)
def trim(
    topic: TopicArgument,
    *,
    before: Annotated[
        int | None, typer.Option("--before", min=0, metavar="OFFSET", help="Remove messages before this offset.")
    ] = None,
    before_time: Annotated[
        str | None, typer.Option("--before-time", metavar="TIME", help="Remove older messages: ISO, epoch ms, or -7d.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all current messages.")] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this partition; default: all.")
    ] = None,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Remove the oldest messages of a topic."""
    if [before is not None, before_time is not None, everything].count(True) != 1:
        raise typer.BadParameter("give one of --before, --before-time and --all")
    moment = parse_moment(before_time, now_ms()) if before_time is not None else None
    admin = open_admin(broker)
    from confluent_kafka import TopicPartition

    partitions = partitions_of(admin, [topic], partition)
    starts, ends = start_offsets(admin, partitions), end_offsets(admin, partitions)
    cuts = offsets_at(admin, partitions, moment) if moment is not None else dict(ends)
    if before is not None:
        cuts = dict.fromkeys(partitions, before)
    beyond = [number for (_, number), cut in cuts.items() if cut > ends[topic, number]]
    if beyond:
        raise Failure(
            f"cannot trim {topic} before {before}: partition {beyond[0]} ends at {ends[topic, beyond[0]]}; "
            "use --all to remove everything, or --partition to trim one partition"
        )
    answers = admin.delete_records(
        [TopicPartition(topic, number, max(cut, starts[topic, number])) for (_, number), cut in cuts.items()],
        request_timeout=REQUEST_TIMEOUT_S,
    )
    trimmed = []
    for where, answer in sorted(answers.items(), key=lambda item: item[0].partition):
        start = settle(answer, f"cannot trim {topic} partition {where.partition}").low_watermark
        removed = max(start - starts[topic, where.partition], 0)
        trimmed.append({"partition": where.partition, "start": start, "removed": removed})
    if as_json:
        print_json({"topic": topic, "partitions": trimmed})
    else:
        print_table(["partition", "start", "removed"], [list(row.values()) for row in trimmed], list(trimmed[0]))
