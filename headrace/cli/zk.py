"""`headrace zk`: shows what a cluster stores in ZooKeeper, and explains it.

Called by main. Read-only. Paths and their meaning are those of headrace.cluster.znodes.
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
    "Show what a cluster stores in ZooKeeper.",
    "headrace zk tree --zookeeper zk1:2181/headrace",
    "headrace zk get /controller --zookeeper zk1:2181/headrace",
)
PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="A znode, such as /brokers/ids.")]

MEANINGS = (
    (r"/cluster/id", "the cluster's id, never changed"),
    (r"/controller", "the current controller; ephemeral"),
    (r"/controller_epoch", "the controller epoch: its version fences writes of earlier controllers"),
    (r"/brokers/ids/\d+", "a live broker and its addresses; ephemeral"),
    (r"/brokers/epochs/\d+", "its version is the broker's epoch, incremented by every registration"),
    (r"/topics/[^/]+", "a topic: its id, settings and partition count"),
    (r"/partitions/[^/]+", "the partitions of the topic with this id"),
    (r"/partitions/[^/]+/\d+", "a partition: replicas, leader, leader epoch, ISR, and eligible leader replicas"),
    (r"/config/brokers/.+", "dynamic settings of one broker, or of all"),
    (r"/producer_ids", "the next producer id to be assigned"),
    (r"/adopting", "a standalone broker's metadata is being copied here, or the copy was interrupted"),
)


@app.command(
    epilog=examples("headrace zk tree --zookeeper zk1:2181/headrace", "headrace zk tree /topics --zookeeper zk1")
)
def tree(zookeeper: ZooKeeperOption, path: PathArgument = "/", as_json: JsonOption = False) -> None:
    """Print every znode below PATH, with its version and contents."""
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
    """Print one znode, and its meaning."""
    (node,) = asyncio.run(_read(zookeeper, path, deep=False))
    if as_json:
        print_json(node)
        return
    typer.echo(f"{path}: {meaning(path)}")
    typer.echo(f"version {node['version']}" + (", ephemeral" if node["ephemeral"] else ""))
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
        raise Failure(
            f"there is no znode {missing.path} at {hosts}: `headrace zk tree` shows those that exist"
        ) from None
    finally:
        await store.close()


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (-1, name)


def _contents(data: bytes) -> Any:
    """JSON without its version field, or text; None if empty. A broker's token is not shown."""
    if not data:
        return None
    try:
        fields = json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")
    if not isinstance(fields, dict):
        return fields
    shown = {name: value for name, value in fields.items() if name != "version"}
    return shown | {"token": "(hidden)"} if shown.get("token") else shown


def _short(contents: Any) -> str:
    if not isinstance(contents, dict):
        return str(contents)
    return "  ".join(f"{name}={json.dumps(value, separators=(',', ':'))}" for name, value in contents.items())
