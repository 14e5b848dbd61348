"""`headrace serve`: reads the options of a broker and hands them to the server.

Called by main. Owns nothing else: the broker, its signals and its exit code belong to headrace.server.run, which is
loaded only when this command runs.
"""

import platform
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import examples, parse_address

EXAMPLES = examples(
    "headrace serve",
    "headrace serve --data /var/lib/headrace --listen 0.0.0.0:9092 --advertise queue.example.com:9092",
    "headrace serve --config headrace.toml --metrics 127.0.0.1:9308",
    "headrace serve --zookeeper zk1:2181,zk2:2181/headrace --broker-id 3 --rack cellar --advertise q3.example.com:9092",
)


def register(app: typer.Typer) -> None:
    app.command("serve", epilog=EXAMPLES)(serve)


def serve(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder of the log and of the metadata.")] = Path(
        "data"
    ),
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect.")] = (
        "127.0.0.1:9092"
    ),
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST:PORT",
            help="Address told to clients; without it, the one that each client connected to.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="File with settings of the broker.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics there.")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper", metavar="HOSTS", help="Join the cluster kept there: host:port,host:port, and a /folder."
        ),
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", metavar="N", min=0, help="Number of this broker in its cluster.")
    ] = None,
    rack: Annotated[
        str | None,
        typer.Option("--rack", metavar="NAME", help="Where it stands; in a cluster the host's name if not given."),
    ] = None,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM."""
    listen_address = parse_address(listen)
    advertise_address = parse_address(advertise) if advertise else None
    metrics_address = parse_address(metrics) if metrics else None

    from headrace.server.run import ServeOptions, run

    raise typer.Exit(
        run(
            ServeOptions(
                data=data,
                listen=listen_address,
                advertise=advertise_address,
                config=config,
                metrics=metrics_address,
                zookeeper=zookeeper,
                broker_id=broker_id,
                rack=rack,
                host_name=platform.node() or None,
            )
        )
    )
