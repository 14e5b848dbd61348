"""`headrace schedule`: list, show, cancel and move messages that are not due yet.

Called by main; works through the SDK's Schedules. Invariant: a command that changes more than one message shows what it
is about to change, or how many that are, and asks for confirmation.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.moments import describe_moment, now_ms, parse_moment, parse_span
from headrace.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, YesOption, command_group, examples
from headrace.cli.pending import Selection, document, open_schedules, parse_id, print_one, print_pending, selection
from headrace.cli.screen import plural, print_json, remark
from headrace.cli.timing import AtOption, DelayOption, timing_headers

if TYPE_CHECKING:
    from headrace.sdk.schedules import Schedules

app = command_group(
    "Show, cancel and move messages that are not due yet.",
    "headrace schedule list reminders",
    "headrace schedule cancel reminders --id 0:41",
    "headrace schedule move reminders --key alice --delay 1h",
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic with headrace.delay.enable.")]
IdsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--id", metavar="PARTITION:ID", help="A message, as `produce` and `schedule list` name it; repeatable."
    ),
]
KeyOption = Annotated[str | None, typer.Option("--key", "-k", help="Messages with this key.")]
AfterOption = Annotated[
    str | None, typer.Option("--due-after", metavar="TIME", help="Due at this time or later: ISO, epoch ms, or +2h.")
]
BeforeOption = Annotated[str | None, typer.Option("--due-before", metavar="TIME", help="Due before this time.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be changed, but change nothing.")]


@app.command(
    "list",
    epilog=examples(
        "headrace schedule list reminders",
        "headrace schedule list reminders --key alice --due-before +1h",
        "headrace schedule list reminders --limit 10 --json",
    ),
)
def list_pending(
    topic: TopicArgument,
    *,
    key: KeyOption = None,
    due_after: AfterOption = None,
    due_before: BeforeOption = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Show only the first N.")] = None,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """List what is pending, by the time at which it is due."""
    chosen = selection(None, key, due_after, due_before, required=False)
    with open_schedules(broker) as schedules:
        found = chosen.matching(schedules, topic)
    if as_json:
        print_json([document(each) for each in found[:limit]])
    elif found:
        print_pending(found[:limit])
        if limit is not None and len(found) > limit:
            remark(f"{len(found) - limit} more are pending")
    else:
        remark(
            f"nothing is pending in {topic}" + ("" if chosen == Selection((), None, None, None) else " that matches")
        )


@app.command(
    epilog=examples("headrace schedule show reminders --id 0:41", "headrace schedule show reminders --id 0:41 --json")
)
def show(
    topic: TopicArgument,
    where: Annotated[str, typer.Option("--id", metavar="PARTITION:ID", help="The message.")],
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Show one pending message with its headers."""
    partition, message_id = parse_id(where)
    with open_schedules(broker) as schedules:
        found = schedules.show(topic, partition, message_id)
    if as_json:
        print_json(document(found))
    else:
        print_one(found)


@app.command(
    epilog=examples(
        "headrace schedule cancel reminders --id 0:41",
        "headrace schedule cancel reminders --key alice --dry-run",
        "headrace schedule cancel reminders --due-before 2026-12-01T00:00:00Z --yes",
    )
)
def cancel(
    topic: TopicArgument,
    *,
    ids: IdsOption = None,
    key: KeyOption = None,
    due_after: AfterOption = None,
    due_before: BeforeOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Cancel pending messages: they are never delivered. A recurring one is not delivered again.

    Asks for confirmation if that are more than one.
    """
    chosen = selection(ids, key, due_after, due_before)
    with open_schedules(broker) as schedules:
        change(Change(schedules, topic, "cancel", "cancelled", {}), chosen, dry_run, yes, as_json)


@app.command(
    epilog=examples(
        "headrace schedule move reminders --id 0:41 --delay 1h",
        "headrace schedule move reminders --key alice --at 2026-12-01T08:00:00Z",
        "headrace schedule move reminders --due-after now --due-before +1h --delay 1h --dry-run",
    )
)
def move(
    topic: TopicArgument,
    *,
    delay: DelayOption = None,
    at: AtOption = None,
    ids: IdsOption = None,
    key: KeyOption = None,
    due_after: AfterOption = None,
    due_before: BeforeOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    broker: BrokerOption = DEFAULT_BROKER,
    as_json: JsonOption = False,
) -> None:
    """Give pending messages another time of delivery: --delay from now, or --at. Their ids stay.

    Asks for confirmation if that are more than one.
    """
    if not timing_headers(delay, at):
        raise typer.BadParameter("say to when: --delay SPAN or --at TIME")
    chosen = selection(ids, key, due_after, due_before)
    time: dict[str, Any] = {}
    if delay is not None:
        time["delay"] = timedelta(milliseconds=parse_span(delay))
    if at is not None:
        time["deliver_at"] = parse_moment(at, now_ms())
    with open_schedules(broker) as schedules:
        change(Change(schedules, topic, "move", "moved", time), chosen, dry_run, yes, as_json)


class Change:
    """What is done to each message: cancelled, or moved to a time."""

    def __init__(self, schedules: "Schedules", topic: str, verb: str, done: str, time: dict[str, Any]) -> None:
        self.schedules = schedules
        self.topic = topic
        self.verb = verb
        self.done = done
        self._one: Callable[..., None] = getattr(schedules, verb)
        self._each: Callable[..., int] = getattr(schedules, f"{verb}_each")
        self._time = time

    def one(self, partition: int, message_id: int) -> None:
        self._one(self.topic, partition, message_id, **self._time)

    def each(self, found: Any) -> int:
        return self._each(found, **self._time)


def change(act: Change, chosen: Selection, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Do it to what was chosen, once it is confirmed if that is more than one message."""
    if chosen.ids and not dry_run:
        change_by_id(act, chosen, yes, as_json)
        return
    found = chosen.matching(act.schedules, act.topic)
    if not dry_run and len(found) > 1 and not yes:
        span = f"due from {describe_moment(found[0].due_ms)} to {describe_moment(found[-1].due_ms)}"
        question = f"{act.verb.capitalize()} {plural(len(found), 'message')} in {act.topic}, {span}?"
        typer.confirm(question, abort=True, err=True)
    count = 0 if dry_run else act.each(found)
    if as_json:
        messages = [document(each) for each in found]
        print_json({"topic": act.topic, "dry_run": dry_run, act.done: count, "messages": messages})
        return
    if dry_run:
        if found:
            print_pending(found)
        remark(f"dry run: nothing was changed, {plural(len(found), 'message')} would be {act.done}")
        return
    typer.echo(f"{act.done} {plural(count, 'message')}")
    if count < len(found):
        remark(f"{plural(len(found) - count, 'message')} had been delivered or cancelled meanwhile")


def change_by_id(act: Change, chosen: Selection, yes: bool, as_json: bool) -> None:
    """Messages that were named need no list. One that is not pending is an error, once the others are done."""
    from headrace.sdk.errors import NotPending

    if len(chosen.ids) > 1 and not yes:
        named = ", ".join(f"{partition}:{message_id}" for partition, message_id in chosen.ids)
        typer.confirm(f"{act.verb.capitalize()} {named} in {act.topic}?", abort=True, err=True)
    done: list[str] = []
    missed: list[str] = []
    for partition, message_id in chosen.ids:
        try:
            act.one(partition, message_id)
            done.append(f"{partition}:{message_id}")
        except NotPending as error:
            missed.append(str(error))
    if as_json:
        print_json({"topic": act.topic, "dry_run": False, act.done: len(done), "ids": done})
    elif done:
        typer.echo(f"{act.done} {', '.join(done)}")
    for reason in missed:
        remark(f"headrace: {reason}")
    if missed:
        raise typer.Exit(1)
