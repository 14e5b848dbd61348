"""`headrace zk`: what a cluster keeps in ZooKeeper, and what it means.

Called by main. Reads only: what is there changes through the brokers. Paths and their meaning are those of
headrace.cluster.znodes.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Annotated, Any

import typer

from headrace.cli.adopt import ZooKeeperOption, open_zookeeper
from headrace.cli.options import JsonOption, command_group, examples
from headrace.cli.screen import print_json
from headrace.model.failure import Failure

app = command_group(
    "Look at what a cluster keeps in ZooKeeper.",
    "headrace zk tree --zookeeper zk1:2181/headrace",
    "headrace zk get /controller --zookeeper zk1:2181/headrace",
)
PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="A node, such as /brokers/ids.")]

MEANINGS = (
    (r"/cluster/id", "the cluster's id, made once"),
    (r"/controller", "which broker is the controller; goes with its session"),
    (r"/controller_epoch", "its version fences every write of a controller"),
    (r"/brokers/ids/\d+", "a broker that is alive, and where; goes with its session"),
    (r"/brokers/epochs/\d+", "its version is the broker's epoch: it rises with every registration"),
    (r"/topics/[^/]+", "a topic: its id, settings and number of partitions"),
    (r"/partitions/[^/]+", "the partitions of the topic with this id"),
    (r"/partitions/[^/]+/\d+", "a partition: replicas, leader, leader epoch, who is in sync, who else may lead"),
    (r"/config/brokers/.+", "settings of a broker, or of all, changed while they ran"),
    (r"/producer_ids", "the first producer id that nobody was given"),
    (r"/adopting", "a single broker's metadata is being copied here, or was and the copy broke off"),
)


@app.command(
    epilog=examples("headrace zk tree --zookeeper zk1:2181/headrace", "headrace zk tree /topics --zookeeper zk1")
)
def tree(zookeeper: ZooKeeperOption, path: PathArgument = "/", as_json: JsonOption = False) -> None:
    """Print every node below PATH, with its version and contents."""
    nodes = asyncio.run(_read(zookeeper, path, deep=True))
    if as_json:
        print_json(nodes)
        return
    for node in nodes:
        indent = "  " * (node["path"].count("/") - 1 if node["path"] != "/" else 0)
        contents = "" if node["data"] is None else f"  v{node['version']}  {_short(node['data'])}"
        typer.echo(f"{indent}{node['path'].rpartition('/')[2] or '/'}{contents}")


@app.command(epilog=examples("headrace zk get /brokers/ids/1 --zookeeper zk1:2181/headrace"))
def get(path: PathArgument, zookeeper: ZooKeeperOption, as_json: JsonOption = False) -> None:
    """Print one node, and what it is for."""
    (node,) = asyncio.run(_read(zookeeper, path, deep=False))
    if as_json:
        print_json(node)
        return
    typer.echo(f"{path}: {meaning(path)}")
    typer.echo(f"version {node['version']}" + (", goes with its session" if node["ephemeral"] else ""))
    if node["data"] is not None:
        typer.echo(json.dumps(node["data"], indent=2) if isinstance(node["data"], dict) else str(node["data"]))


def meaning(path: str) -> str:
    found = [words for pattern, words in MEANINGS if re.fullmatch(pattern, path)]
    return found[0] if found else "a folder"


async def _read(hosts: str, path: str, *, deep: bool) -> list[dict[str, Any]]:
    from headrace.cluster.store import NoNode

    store = await open_zookeeper(hosts)
    try:
        found: list[dict[str, Any]] = []
        todo = [path]
        while todo:
            at = todo.pop(0)
            data, stat = await store.get(at)
            found.append(
                {"path": at, "version": stat.version, "ephemeral": stat.ephemeral_owner != 0, "data": _contents(data)}
            )
            if deep:
                names = await store.children(at)
                todo = [f"{at.rstrip('/')}/{name}" for name in sorted(names, key=_by_number)] + todo
        return found
    except NoNode as missing:
        raise Failure(f"there is no node {missing.path} at {hosts}; `headrace zk tree` shows what is there") from None
    finally:
        await store.close()


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (-1, name)


def _contents(data: bytes) -> Any:
    """JSON without its version field, or text; None for nothing."""
    if not data:
        return None
    try:
        fields = json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")
    return {name: value for name, value in fields.items() if name != "version"} if isinstance(fields, dict) else fields


def _short(contents: Any) -> str:
    if not isinstance(contents, dict):
        return str(contents)
    return "  ".join(f"{name}={json.dumps(value, separators=(',', ':'))}" for name, value in contents.items())
