"""`headrace up`: runs a local cluster with one command: ZooKeeper, brokers, and their state.

Called by main. Everything is stored in one folder, so the next `up` there continues with its data. Ctrl-C stops the
brokers cleanly, then ZooKeeper. Meant for development and for trying things out; in production each broker is a
`headrace serve` on its own machine.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.local_cluster import BrokerProcess
from headrace.cli.local_zookeeper import LocalZooKeeper, free_ports
from headrace.cli.options import examples
from headrace.cli.screen import plural, print_table, remark
from headrace.cli.stopping import Stop, stop_on_signals
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from headrace.cli.admin_nouns import AdminClient

EXAMPLES = examples("headrace up", "headrace up --brokers 5 --data /tmp/queue --port 0")
_LOOK_S = 1.0


def register(app: typer.Typer) -> None:
    app.command("up", epilog=EXAMPLES)(up)


def up(
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", min=1, max=99, help="Number of brokers.")] = 3,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder for all data and logs.")] = Path(
        "cluster"
    ),
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            help="Port of the first broker; the others use the next ones. 0: free ports.",
        ),
    ] = 9092,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="File with settings for all brokers.")
    ] = None,
) -> None:
    """Run ZooKeeper and a cluster of brokers on this machine until Ctrl-C."""
    data.mkdir(parents=True, exist_ok=True)
    zookeeper = LocalZooKeeper(data / "zookeeper", free_ports(1)[0])
    ports = [port + at for at in range(brokers)] if port else free_ports(brokers)
    settings = [] if config is None else ["--config", str(config)]
    members = [
        BrokerProcess(data, number, f"{zookeeper.address}/headrace", at, ["--rack", f"rack-{number}", *settings])
        for number, at in enumerate(ports, start=1)
    ]
    with stop_on_signals() as stop:
        try:
            _start(zookeeper, members, stop)
            if not stop.asked:
                _show(zookeeper, members)
                _watch(members, stop)
        finally:
            remark("stopping")
            for member in members:
                member.stop()
            zookeeper.stop()


def _start(zookeeper: LocalZooKeeper, members: list[BrokerProcess], stop: Stop) -> None:
    remark("starting ZooKeeper")
    zookeeper.start()
    zookeeper.wait_until_ready()
    remark(f"starting {plural(len(members), 'broker')}")
    for member in members:
        member.start()
    for member in members:
        if stop.asked:
            return
        member.wait_until_ready()


def _show(zookeeper: LocalZooKeeper, members: list[BrokerProcess]) -> None:
    print_table(
        ["broker", "address", "data", "log"],
        [(member.number, member.address, member.data, member.log) for member in members],
        right=["broker"],
    )
    typer.echo(f"bootstrap servers: {','.join(member.address for member in members)}")
    remark(f"ZooKeeper: {zookeeper.address}/headrace (headrace zk tree --zookeeper {zookeeper.address}/headrace)")
    remark("Ctrl-C stops the cluster")


def _watch(members: list[BrokerProcess], stop: Stop) -> None:
    """Print the state of the cluster whenever it changes."""
    from headrace.cli.connection import open_admin

    admin = open_admin(",".join(member.address for member in members))
    said = ""
    while not stop.asked:
        gone = [member for member in members if member.ended() is not None]
        if len(gone) == len(members):
            raise Failure(f"every broker has ended; the log of the first is {members[0].log}")
        state = _state(admin, gone)
        if state != said:
            typer.echo(state)
            said = state
        time.sleep(_LOOK_S)


def _state(admin: AdminClient, gone: list[BrokerProcess]) -> str:
    from confluent_kafka import KafkaException

    try:
        seen = admin.list_topics(timeout=5)
    except KafkaException:
        return "no broker answers"
    partitions = [partition for topic in seen.topics.values() for partition in topic.partitions.values()]
    leaderless = sum(partition.leader < 0 for partition in partitions)
    lagging = sum(len(partition.isrs) < len(partition.replicas) for partition in partitions)
    words = [f"{plural(len(seen.brokers), 'broker')} ({', '.join(map(str, sorted(seen.brokers)))})"]
    words += [f"controller {seen.controller_id if seen.controller_id >= 0 else '-'}"]
    words += [plural(len(seen.topics), "topic"), plural(len(partitions), "partition")]
    words += [f"{leaderless} without a leader"] if leaderless else []
    words += [f"{lagging} with replicas out of sync"] if lagging else []
    words += [f"broker {member.number} has ended, see {member.log}" for member in gone]
    return ", ".join(words)
