"""The root of the command line: `headrace` with all command groups.

Turns every error into one line on stderr and an exit code, so that no command prints a traceback or handles errors
itself. Called by the `headrace` script and by the tests. Invariant: importing this module loads neither the Kafka
client, nor rich, nor the server, so `--help` is instant.
"""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.cli import (
    cluster,
    consume,
    group,
    log,
    pipeline,
    produce,
    schedule,
    serve,
    share,
    topic,
    transaction,
    up,
    view,
    zk,
)
from headrace.cli.options import examples
from headrace.model.failure import Failure, one_line


class RootGroup(TyperGroup):
    """The root group: runs a command and turns its failure into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except Failure as failure:
            typer.echo(f"headrace: {one_line(str(failure))}", err=True)
            raise typer.Exit(1) from None
        except BrokenPipeError:
            leave_pipe()
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except Exception as error:
            line = client_failure(error)
            if line is None:
                raise
            typer.echo(f"headrace: {one_line(line)}", err=True)
            raise typer.Exit(1) from None
        return result


def leave_pipe() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's last flush does not fail on the closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def client_failure(error: Exception) -> str | None:
    """The message of an error of the Kafka client, if it is one; does not load the client."""
    client = sys.modules.get("confluent_kafka")
    if client is None or not isinstance(error, client.KafkaException):
        return None
    cause = error.args[0] if error.args else error
    return str(cause.str()) if isinstance(cause, client.KafkaError) else str(cause)


app = typer.Typer(
    cls=RootGroup,
    name="headrace",
    help="A durable message queue that speaks the Kafka protocol.",
    epilog=examples(
        "headrace serve --data ./data",
        "headrace topic create orders --partitions 4",
        "echo 'hello' | headrace produce orders",
        "headrace consume orders --exit",
        "headrace group describe billing",
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command(
    "serve",
    help=serve.SUMMARY,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def run_serve(context: typer.Context) -> None:
    raise typer.Exit(serve.run(context.args))


up.register(app)
produce.register(app)
consume.register(app)
app.add_typer(topic.app, name="topic")
app.add_typer(view.app, name="view")
app.add_typer(group.app, name="group")
app.add_typer(schedule.app, name="schedule")
app.add_typer(share.app, name="share")
app.add_typer(transaction.app, name="transaction")
app.add_typer(log.app, name="log")
app.add_typer(cluster.app, name="cluster")
app.add_typer(zk.app, name="zk")
app.add_typer(pipeline.app, name="pipeline")
