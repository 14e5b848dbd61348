"""Writes docs/settings.md from the tables of settings: `python tools/settings_page.py`. A test fails when it is
stale."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headrace.model import broker_config, group_config, topic_config
from headrace.model.settings import INT_MAX, LONG_MAX, Setting

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

_HEAD = """# Settings

This page is made from the tables in `headrace/model` by `python tools/settings_page.py`.

A value is looked up in this order: the topic, the run-time setting of this broker, the run-time setting of all brokers,
the file given by `headrace serve --config FILE`, the default. The file has one `key=value` per line; lines that start
with `#` are comments. An unknown name, an invalid value or a name that is set twice is an error that names the file and
the line, and the broker does not start.

Settings of topics and groups, and broker settings that are not read at start only, can be changed at run time, with
`headrace topic alter` or any Kafka admin client.
"""


def page() -> str:
    topics = _table(
        ("setting", "type", "default", "allowed", "broker setting", "meaning"),
        ((*_facts(s), f"`{s.broker_name}`" if s.broker_name else "", s.meaning) for s in topic_config.SETTINGS),
    )
    groups = _table(
        ("setting", "type", "default", "allowed", "broker setting", "meaning"),
        ((*_facts(s), f"`{s.broker_name}`" if s.broker_name else "", s.meaning) for s in group_config.SETTINGS),
    )
    own = [setting for setting in broker_config.SETTINGS if setting.read_only]
    fallbacks = [setting for setting in broker_config.SETTINGS if not setting.read_only]
    columns = ("setting", "type", "default", "allowed", "meaning")
    return "\n".join(
        (
            _HEAD,
            "## Topics\n",
            topics,
            "\n## Groups of the new protocol\n",
            groups,
            "\n## Brokers, read at start only\n",
            _table(columns, ((*_facts(s), s.meaning) for s in own)),
            "\n## Brokers, for topics that do not set the same\n",
            _table(columns, ((*_facts(s), s.meaning) for s in fallbacks)),
            "",
        )
    )


def _facts(setting: Setting) -> tuple[str, str, str, str]:
    names = {LONG_MAX: "no limit", INT_MAX: "no limit"}
    default = "" if setting.default is None else f"`{setting.text(setting.default)}`"
    if not isinstance(setting.default, tuple):
        default = names.get(setting.default, default)
    return f"`{setting.name}`", setting.type.name.lower(), default, setting.range


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
