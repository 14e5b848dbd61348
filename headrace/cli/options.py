"""Options shared by several commands, and the parsers of their values.

Called by every command module. Invariant: an option has one name, one meaning and one parser in the whole command line;
an invalid value is a usage error (exit code 2) that quotes the value and shows a valid one.
"""

from argparse import ArgumentTypeError
from typing import Annotated

import typer

from headrace.cli.addresses import address

DEFAULT_BROKER = "127.0.0.1:9092"

BrokerOption = Annotated[
    str,
    typer.Option(
        "--broker",
        "-b",
        metavar="HOST:PORT",
        envvar="HEADRACE_BROKER",
        help="Broker to connect to; several separated by commas.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
ConfigOption = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="Topic setting; repeatable.")
]


def command_group(help_text: str, *example_lines: str) -> typer.Typer:
    """An empty command group with plain help, and examples at the end."""
    return typer.Typer(
        help=help_text,
        epilog=examples(*example_lines),
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def examples(*lines: str) -> str:
    """The examples at the end of a help page. The backspace tells click not to rewrap the paragraph."""
    return "\b\nExamples:\n" + "\n".join(f"  $ {line}" for line in lines)


def parse_address(text: str) -> tuple[str, int]:
    """Like `addresses.address`; an invalid value is a usage error."""
    try:
        return address(text)
    except ArgumentTypeError as error:
        raise typer.BadParameter(str(error)) from None


def parse_brokers(text: str) -> list[tuple[str, int]]:
    """Every address of a `--broker` value."""
    return [parse_address(part.strip()) for part in text.split(",")]


def parse_pairs(values: list[str] | None, what: str) -> dict[str, str]:
    """`NAME=VALUE` options as a dict; the value may be empty and may contain equal signs."""
    pairs: dict[str, str] = {}
    for value in values or []:
        name, equals, content = value.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{value!r} is not a {what}: write NAME=VALUE")
        pairs[name] = content
    return pairs


def parse_topic_partition(text: str) -> tuple[str, int | None]:
    """`topic` or `topic:partition`; a topic name cannot contain a colon."""
    topic, colon, partition = text.partition(":")
    if not topic or (colon and not partition.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not TOPIC or TOPIC:PARTITION, such as orders or orders:0")
    return topic, int(partition) if colon else None


def unescape(text: str) -> str:
    r"""A delimiter or format as typed in a shell: \n, \t, \r, \0, \\ and \xNN stand for one character each."""
    single = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
    plain: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character != "\\":
            plain.append(character)
            position += 1
        elif following in single and following:
            plain.append(single[following])
            position += 2
        elif following == "x" and is_hex_pair(text[position + 2 : position + 4]):
            plain.append(chr(int(text[position + 2 : position + 4], 16)))
            position += 4
        else:
            raise typer.BadParameter(rf"{text!r}: \{following} is not an escape: use \n \t \r \0 \\ or \xNN")
    return "".join(plain)


def is_hex_pair(text: str) -> bool:
    return len(text) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in text)
