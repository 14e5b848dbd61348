"""`headrace view`: create, list, describe and delete views of topics, by tag or of what is pending.

Called by main. A view is a topic that any admin client can make; these commands give the settings their names, and
show which topics are views. Invariant: a command that deletes looks first whether the topic is a view, so it never
removes a record.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connection import REQUEST_TIMEOUT_S, open_admin, settle
from headrace.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, YesOption, command_group, examples
from headrace.cli.screen import plural, print_facts, print_json, print_table, remark
from headrace.cli.topics import describe_topics, end_offsets, partitions_of, start_offsets
from headrace.model.delays import VIEW_PENDING, shows_pending
from headrace.model.failure import Failure
from headrace.model.tag_filter import MATCHES, VIEW_MATCH, VIEW_OF, VIEW_TAGS, TagFilter

if TYPE_CHECKING:
    from headrace.cli.admin_nouns import AdminClient

app = command_group(
    "Create, show and delete views of topics: by tag, or of what is pending.",
    "headrace view create orders.urgent --of orders --tag urgent",
    "headrace view list",
    "headrace view delete orders.urgent",
)

ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="Name of the view.")]
_SETTINGS = (VIEW_OF, VIEW_TAGS, VIEW_MATCH, VIEW_PENDING)
_AT_ONCE = 100  # topics whose settings are asked for together


def parse_filter(tags: list[str], match: str) -> TagFilter:
    try:
        return TagFilter(tuple(dict.fromkeys(tags)), match)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


TagOption = Annotated[list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="Tag to go by; repeatable.")]
MatchOption = Annotated[str, typer.Option("--match", help=f"Keep records with {', '.join(MATCHES)} of the tags.")]


@app.command(
    epilog=examples(
        "headrace view create orders.urgent --of orders --tag urgent",
        "headrace view create orders.rest --of orders --tag urgent --tag test --match none",
        "headrace view create reminders.pending --of reminders --pending",
    )
)
def create(
    view: ViewArgument,
    *,
    base: Annotated[str, typer.Option("--of", metavar="TOPIC", help="The topic whose records it shows.")],
    tag: TagOption = None,
    match: MatchOption = "any",
    pending: Annotated[bool, typer.Option("--pending", help="Show the delayed messages that are pending.")] = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Create a read-only view of a topic that has headrace.tags.enable or, with --pending, headrace.delay.enable."""
    if pending and (tag or match != "any"):
        raise typer.BadParameter("--pending shows all that is pending: it goes without --tag and --match")
    if not pending and not tag:
        raise typer.BadParameter("name what the view shows: --tag TAG, or --pending")
    settings = {VIEW_OF: base, VIEW_PENDING: "true"} if pending else parse_filter(tag or [], match).settings(base)
    admin = open_admin(broker)
    from headrace.cli.admin_nouns import NewTopic

    new = NewTopic(view, -1, -1, config=settings)
    settle(admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[view], f"cannot create view {view}")
    if as_json:
        print_json(_facts(view, settings))
    else:
        typer.echo(f"created view {view} of {base}: {_said(settings)}")


@app.command("list", epilog=examples("headrace view list", "headrace view list --of orders --json"))
def list_views(
    base: Annotated[str | None, typer.Option("--of", metavar="TOPIC", help="Only views of this topic.")] = None,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """List views with their base and filter."""
    found = {
        name: settings for name, settings in views(open_admin(broker)).items() if base in (None, settings[VIEW_OF])
    }
    if as_json:
        print_json([_facts(name, settings) for name, settings in found.items()])
    elif found:
        rows = [(name, settings[VIEW_OF], _said(settings)) for name, settings in found.items()]
        print_table(["view", "of", "keeps"], rows, [])
    else:
        remark("no views yet: create one with `headrace view create NAME --of TOPIC --tag TAG`")


@app.command(epilog=examples("headrace view describe orders.urgent"))
def describe(view: ViewArgument, broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show what a view keeps, and the offsets of its partitions, which are those of its base."""
    admin = open_admin(broker)
    settings = known_view(admin, view)
    partitions = partitions_of(admin, [view])
    starts, ends = start_offsets(admin, partitions), end_offsets(admin, partitions)
    rows = [(number, starts[view, number], ends[view, number]) for _, number in partitions]
    if as_json:
        offsets = [{"partition": number, "start": start, "end": end} for number, start, end in rows]
        print_json({**_facts(view, settings), "partitions": offsets})
        return
    print_facts([("view", view), ("of", settings[VIEW_OF]), ("keeps", _said(settings))])
    print_table(["partition", "start", "end"], rows, ["partition", "start", "end"])


@app.command(epilog=examples("headrace view delete orders.urgent --yes"))
def delete(
    view: ViewArgument, *, yes: YesOption = False, broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False
) -> None:
    """Delete a view. The records stay in its base; offsets that groups committed on the view go."""
    admin = open_admin(broker)
    base = known_view(admin, view)[VIEW_OF]
    if not yes:
        typer.confirm(f"delete view {view} of {base}?", abort=True, err=True)
    settle(admin.delete_topics([view], request_timeout=REQUEST_TIMEOUT_S)[view], f"cannot delete view {view}")
    if as_json:
        print_json({"deleted": [view]})
    else:
        typer.echo(f"deleted view {view}; the records of {base} stay")


def views(admin: "AdminClient", names: list[str] | None = None) -> dict[str, dict[str, str]]:
    """Every view of these topics, or of all, with its settings."""
    from headrace.cli.admin_nouns import ConfigResource

    if names is None:
        names = sorted(admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
    found: dict[str, dict[str, str]] = {}
    for first in range(0, len(names), _AT_ONCE):
        resources = [ConfigResource("topic", name) for name in names[first : first + _AT_ONCE]]
        for resource, answer in admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S).items():
            entries: dict[str, Any] = settle(answer, f"cannot read the settings of {resource.name}")
            base = entries.get(VIEW_OF)
            if base is not None and base.value:
                found[resource.name] = {name: entry.value for name, entry in entries.items() if name in _SETTINGS}
    return found


def known_view(admin: "AdminClient", name: str) -> dict[str, str]:
    """The settings of this view; Failure if there is none of this name."""
    describe_topics(admin, [name])  # says if there is no such topic
    settings = views(admin, [name]).get(name)
    if settings is None:
        raise Failure(f"topic {name} is no view: `headrace view list` shows those that are")
    return settings


def _facts(name: str, settings: dict[str, str]) -> dict[str, Any]:
    if shows_pending(settings):
        return {"view": name, "of": settings[VIEW_OF], "pending": True}
    tags = [tag for tag in settings[VIEW_TAGS].split(",") if tag]
    return {"view": name, "of": settings[VIEW_OF], "match": settings[VIEW_MATCH], "tags": tags}


def _said(settings: dict[str, str]) -> str:
    if shows_pending(settings):
        return "what is pending"
    tags = settings[VIEW_TAGS].split(",")
    return f"records with {settings[VIEW_MATCH]} of {plural(len(tags), 'tag')} {', '.join(tags)}"
