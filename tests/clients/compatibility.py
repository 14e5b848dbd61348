"""The compatibility table: one row per story, one column per client, as Markdown.

The compatibility run fills it; docs/compatibility.md is what `render` returns, so the page says only what was run.
"""

from dataclasses import dataclass, field

from tests.clients.stories import STORIES

PASS, FAIL, NOT_OFFERED, NOT_ASKED, NOT_RUN = "pass", "**FAIL**", "–", "·", "not run"

LEGEND = f"""\
`{PASS}`: told and true. `{NOT_OFFERED}`: the client has no such function. `{NOT_ASKED}`: not asked here, because the
tool stands on a client that has its own column. `{NOT_RUN}`: the client could not be had on the machine of this run."""


@dataclass
class Column:
    """One client: its version and a cell per story."""

    client: str
    version: str
    cells: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    missing: str | None = None


def column(
    client: str,
    version: str,
    outcomes: dict[str, list[str]],
    not_offered: frozenset[str],
    not_asked: frozenset[str],
) -> Column:
    """Judges what a client told. A story that is neither told nor accounted for is a failure: nothing is skipped."""
    made = Column(client, version)
    for slug in STORIES:
        told = outcomes.get(slug, [])
        bad = [outcome for outcome in told if outcome != "pass"]
        if bad:
            made.cells[slug] = FAIL
            made.failures.extend(f"{client}: {slug}: {outcome}" for outcome in bad)
        elif told:
            made.cells[slug] = PASS
        elif slug in not_offered:
            made.cells[slug] = NOT_OFFERED
        elif slug in not_asked:
            made.cells[slug] = NOT_ASKED
        else:
            made.cells[slug] = FAIL
            made.failures.append(f"{client}: {slug}: the story was not told")
    return made


def not_run(client: str, why: str) -> Column:
    return Column(client, NOT_RUN, dict.fromkeys(STORIES, NOT_RUN), missing=why)


def render(columns: list[Column], broker: str, day: str) -> str:
    lines = [
        "# Which clients work, and with what",
        "",
        f"Written by `make test-clients` on {day}, with {broker}. Each client is the unmodified release; each story is",
        "one or more tests against a real broker process. The same tests can be pointed at Apache Kafka, by",
        "`HEADRACE_BOOTSTRAP=host:port`, to tell a wrong broker from a wrong test.",
        "",
        "| story | " + " | ".join(made.client for made in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
        "| version | " + " | ".join(made.version for made in columns) + " |",
    ]
    for slug, meaning in STORIES.items():
        lines.append(f"| {meaning} | " + " | ".join(made.cells[slug] for made in columns) + " |")
    lines += ["", LEGEND]
    absent = [f"- {made.client}: {made.missing}" for made in columns if made.missing]
    if absent:
        lines += ["", "Not run:", "", *absent]
    return "\n".join(lines) + "\n"
