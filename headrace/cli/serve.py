"""`headrace serve`: reads the options of a broker and hands them to the server.

Called by entry.py, without the rest of the command line, so that a broker starts at once; and by main.py, which lists
it beside the other commands. Owns nothing else: the broker, its signals and its exit code belong to
headrace.server.run, which is loaded only when this command runs.
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
    """The exit status. What a person can mend is one line on stderr."""
    options = _parser().parse_args(arguments)

    from headrace.server.run import ServeOptions
    from headrace.server.run import run as serve

    chosen = ServeOptions(
        data=options.data.absolute(),  # DescribeLogDirs tells it to people on other machines
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
    add("--data", type=Path, metavar="DIR", default=Path("data"), help="folder of the log and of the metadata")
    add("--listen", type=address, metavar="HOST:PORT", default="127.0.0.1:9092", help="where clients connect")
    add(
        "--advertise",
        type=address,
        metavar="HOST:PORT",
        help="address told to clients; without it, the one that each client connected to",
    )
    add("--config", type=Path, metavar="FILE", help="file with settings of the broker")
    add("--metrics", type=address, metavar="HOST:PORT", help="serve Prometheus metrics there")
    add("--zookeeper", metavar="HOSTS", help="join the cluster kept there: host:port,host:port, and a /folder")
    add("--broker-id", type=_broker_id, metavar="N", help="number of this broker in its cluster")
    add("--rack", metavar="NAME", help="where it stands; in a cluster the host's name if not given")
    return parser


def _broker_id(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)
