"""`headrace serve`: parses the options of a broker and runs the server.

Called by entry.py, without the rest of the command line, so that a broker starts fast; and by main.py, which lists it
with the other commands. The broker, its signals and its exit code belong to headrace.server.run, which is loaded only
when this command runs.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.cli.addresses import address
from headrace.model.failure import Failure, one_line

SUMMARY = "Run a broker until Ctrl-C or SIGTERM."
_EXAMPLES = """Examples:
  $ headrace serve
  $ headrace serve --data /var/lib/headrace --listen 0.0.0.0:9092 --advertise queue.example.com:9092
  $ headrace serve --config headrace.properties --metrics 127.0.0.1:9308
  $ headrace serve --zookeeper zk1:2181,zk2:2181/headrace --broker-id 3 --rack cellar --advertise q3.example.com:9092
"""


def run(arguments: Sequence[str]) -> int:
    """Run a broker; returns the exit status. A Failure is printed as one line on stderr."""
    options = _parser().parse_args(arguments)

    from headrace.server.run import ServeOptions
    from headrace.server.run import run as serve

    chosen = ServeOptions(
        data=options.data.absolute(),  # DescribeLogDirs shows it to users on other machines
        listen=options.listen,
        advertise=options.advertise,
        config=options.config,
        metrics=options.metrics,
        zookeeper=options.zookeeper,
        broker_id=options.broker_id,
        rack=options.rack,
        host_name=os.uname().nodename or None,
    )
    try:
        return serve(chosen)
    except Failure as failure:
        print(f"headrace: {one_line(str(failure))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "headrace serve",
        description=SUMMARY,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", default=Path("data"), help="folder for logs and metadata")
    add("--listen", type=address, metavar="HOST:PORT", default="127.0.0.1:9092", help="where clients connect")
    add(
        "--advertise",
        type=address,
        metavar="HOST:PORT",
        help="address returned to clients; default: the one that each client connected to",
    )
    add("--config", type=Path, metavar="FILE", help="file with broker settings, NAME=VALUE lines")
    add("--metrics", type=address, metavar="HOST:PORT", help="serve Prometheus metrics there")
    add("--zookeeper", metavar="HOSTS", help="join the cluster in this ZooKeeper: host:port,host:port, and a /folder")
    add("--broker-id", type=_broker_id, metavar="N", help="id of this broker in its cluster")
    add("--rack", metavar="NAME", help="rack of this broker; default in a cluster: the host's name")
    return parser


def _broker_id(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a broker id: write a number, at least 0")
    return int(text)
