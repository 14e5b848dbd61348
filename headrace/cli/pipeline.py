"""`headrace pipeline`: run data pipelines on Spark, create and check their configurations.

Called by main. Invariant: only `run` loads Spark, and only after the configuration was found to be valid.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.moments import describe_moment, describe_span, now_ms
from headrace.cli.options import (
    DEFAULT_BROKER,
    BrokerOption,
    JsonOption,
    command_group,
    examples,
    parse_pairs,
)
from headrace.cli.screen import print_facts, print_json, print_table, remark
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from headrace.spark.pipelines.checkpoints import Status
    from headrace.spark.pipelines.configuration import Configuration

app = command_group(
    "Run data pipelines on Spark: archive, replay, aggregate, dedup, dlq-report, sql.",
    "headrace pipeline list",
    "headrace pipeline init archive --topic logs > archive.yaml",
    "headrace pipeline run archive.yaml",
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Configuration, a YAML file.")]
FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Configurations, YAML files.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as trigger=1m; repeatable."),
]
MISSING = "pipelines need PySpark and its dependencies: pip install 'headrace[spark]'"


@app.command("run", epilog=examples("headrace pipeline run archive.yaml", "headrace pipeline run a.yaml --once"))
def run_pipeline(
    file: FileArgument,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark master; default: all cores of this machine.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when the pipeline has caught up with its topics.")] = False,
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline until it ends, or until Ctrl-C."""
    from headrace.cli.pipeline_screen import PipelineScreen
    from headrace.cli.stopping import stop_on_signals

    wanted = parse_pairs(changes, "change")
    if once:
        wanted["trigger"] = "available-now"
    config = read(file, wanted)
    try:
        from headrace.spark.pipelines.launch import launch
    except ImportError as error:
        raise Failure(f"{MISSING} ({error.name} is missing)") from None
    began = time.monotonic()
    with stop_on_signals() as stop, PipelineScreen() as screen:
        facts = launch(config, master=master, reporter=screen, stop_asked=lambda: stop.asked)
    facts["took"] = describe_span(time.monotonic() - began)
    if as_json:
        print_json(facts)
    else:
        print_facts(list(facts.items()))


@app.command("list", epilog=examples("headrace pipeline list"))
def list_pipelines(as_json: JsonOption = False) -> None:
    """List the available pipelines."""
    from headrace.spark.pipelines.catalogue import NAMES, pipeline

    rows = [(name, pipeline(name, "list").SUMMARY) for name in NAMES]
    if as_json:
        print_json([{"pipeline": name, "does": summary} for name, summary in rows])
    else:
        print_table(["pipeline", "does"], rows)


@app.command("init", epilog=examples("headrace pipeline init archive --topic logs > archive.yaml"))
def init_pipeline(
    name: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="Name of the pipeline; `headrace pipeline list` shows all.")
    ],
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic it reads.")] = "logs",
    broker: BrokerOption = DEFAULT_BROKER,
) -> None:
    """Print an initial configuration."""
    from headrace.spark.pipelines.catalogue import template

    typer.echo(template(name, broker, topic), nl=False)


@app.command("validate", epilog=examples("headrace pipeline validate archive.yaml"))
def validate_pipelines(
    files: FilesArgument,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not check on the brokers that the topics exist.")
    ] = False,
) -> None:
    """Check configurations, and report the first mistake."""
    from headrace.spark.pipelines.catalogue import pipeline
    from headrace.spark.pipelines.topics import check_topics

    for file in files:
        config = read(file, {})
        if not offline:
            check_topics(pipeline(config.pipeline, str(file)).topics(config))
        remark(f"{file}: {config.title()} is valid")


@app.command("status", epilog=examples("headrace pipeline status archive.yaml dedup.yaml"))
def status_of_pipelines(files: FilesArgument, as_json: JsonOption = False) -> None:
    """Show the status of pipelines, as their last run wrote it into their checkpoints."""
    from headrace.spark.pipelines.checkpoints import open_checkpoint

    found: list[tuple[str, Status | None]] = []
    for file in files:
        config = read(file, {})
        found.append((config.title(), open_checkpoint(config.checkpoint).status() if config.checkpoint else None))
    if as_json:
        import msgspec

        print_json([{"name": name, "status": msgspec.to_builtins(status)} for name, status in found])
        return
    columns = ["name", "state", "rows", "rows/s", "lag", "batch", "told", "error"]
    print_table(columns, [status_row(name, status) for name, status in found], right=["rows", "rows/s", "lag", "batch"])


def status_row(name: str, status: "Status | None") -> list[object]:
    if status is None:
        return [name, "never ran", None, None, None, None, None, None]
    age = describe_span((now_ms() - status.at_ms) / 1000)
    told = f"{describe_moment(status.at_ms)} ({age} ago)"
    pace = f"{status.rows_per_s:,.0f}"
    return [name, status.state, status.rows, pace, status.lag, status.batch, told, status.error]


def read(file: Path, changes: dict[str, str]) -> "Configuration":
    try:
        from headrace.spark.pipelines.catalogue import read_configuration
    except ImportError as error:
        raise Failure(f"{MISSING} ({error.name} is missing)") from None
    try:
        text = file.read_text()
    except OSError as error:
        raise Failure(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    return read_configuration(text, str(file), changes)
