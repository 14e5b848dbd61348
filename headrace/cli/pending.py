"""Pending messages for people: which are meant, and how they are printed.

Called by the commands of `headrace schedule`. Invariant: a selection names something; nothing is ever changed because a
limit was left out.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.connection import open_admin
from headrace.cli.message_text import header_document, put_bytes
from headrace.cli.moments import describe_moment, describe_span, now_ms, parse_moment
from headrace.cli.screen import print_facts, print_table

if TYPE_CHECKING:
    from headrace.sdk.scheduled import Scheduled
    from headrace.sdk.schedules import Schedules

VALUE_WIDTH = 40  # characters of a value in a table


@dataclass(frozen=True)
class Selection:
    """By ids, or by key and time of delivery."""

    ids: tuple[tuple[int, int], ...]  # partition and id
    key: str | None
    due_after: int | None
    due_before: int | None

    def matching(self, schedules: "Schedules", topic: str) -> "list[Scheduled]":
        if self.ids:
            return [schedules.show(topic, partition, message_id) for partition, message_id in self.ids]
        return schedules.list(topic, self.key, self.due_after, self.due_before)


def selection(
    ids: list[str] | None, key: str | None, due_after: str | None, due_before: str | None, required: bool = True
) -> Selection:
    now = now_ms()
    after = None if due_after is None else parse_moment(due_after, now)
    before = None if due_before is None else parse_moment(due_before, now)
    limits = (key, after, before)
    if ids and limits != (None, None, None):
        raise typer.BadParameter("--id names messages: leave out --key, --due-after and --due-before")
    if required and not ids and limits == (None, None, None):
        raise typer.BadParameter("say which messages: --id PARTITION:ID, --key, --due-after or --due-before")
    if after is not None and before is not None and after >= before:
        raise typer.BadParameter("--due-after is not before --due-before: nothing can be due between them")
    return Selection(tuple(dict.fromkeys(map(parse_id, ids or []))), key, after, before)


def parse_id(text: str) -> tuple[int, int]:
    partition, colon, message_id = text.partition(":")
    if not colon or not (partition + message_id).isascii() or not partition.isdecimal() or not message_id.isdecimal():
        raise typer.BadParameter(f"{text!r} is not PARTITION:ID, such as 0:41")
    if int(partition) >= 1 << 31 or int(message_id) >= 1 << 63:
        raise typer.BadParameter(f"{text!r} is too large for PARTITION:ID")
    return int(partition), int(message_id)


def open_schedules(broker: str) -> "Schedules":
    """The SDK's Schedules, on a broker that has answered a request."""
    open_admin(broker)
    from headrace.sdk.schedules import Schedules

    settings: dict[str, Any] = {
        "client.id": "headrace-cli",
        "broker.address.family": "any",
        "message.timeout.ms": 30_000,
    }
    return Schedules(broker, **settings)


def document(pending: "Scheduled") -> dict[str, Any]:
    """A pending message in JSON."""
    shown: dict[str, Any] = {
        "topic": pending.topic,
        "partition": pending.partition,
        "id": pending.id,
        "due": pending.due_ms,
        "cron": pending.cron,
        "cron_tz": pending.cron_tz,
    }
    put_bytes(shown, "key", pending.key)
    put_bytes(shown, "value", pending.message.raw)
    shown["headers"] = [header_document(name, value) for name, value in pending.message.headers]
    return shown


def print_pending(found: "list[Scheduled]") -> None:
    now = now_ms()
    rows = [
        (
            f"{each.partition}:{each.id}",
            describe_moment(each.due_ms),
            describe_span((each.due_ms - now) / 1000),
            short(each.key),
            short(each.message.raw),
            repeating(each),
        )
        for each in found
    ]
    print_table(["id", "due", "in", "key", "value", "repeats"], rows, right=["in"])


def print_one(pending: "Scheduled") -> None:
    print_facts(
        [
            ("topic", pending.topic),
            ("id", f"{pending.partition}:{pending.id}"),
            ("due", describe_moment(pending.due_ms)),
            ("in", describe_span((pending.due_ms - now_ms()) / 1000)),
            ("repeats", repeating(pending)),
            ("key", readable(pending.key)),
            ("value", readable(pending.message.raw)),
        ]
    )
    for name, value in pending.message.headers:
        typer.echo(f"  {name}={readable(value)}")


def repeating(pending: "Scheduled") -> str | None:
    return None if pending.cron is None else f"{pending.cron} {pending.cron_tz}"


def readable(content: bytes | None) -> str | None:
    """Text; bytes that are no text, and line breaks, are escaped."""
    return None if content is None else content.decode(errors="backslashreplace").replace("\n", r"\n")


def short(content: bytes | None) -> str | None:
    text = readable(content)
    return text if text is None or len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 1]}…"
