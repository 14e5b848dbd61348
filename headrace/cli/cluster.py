"""`headrace cluster`: who the brokers are.

Called by main. Shows what the cluster says about itself in DescribeCluster and Metadata, nothing of its own.
"""

from typing import Any

from headrace.cli.connection import REQUEST_TIMEOUT_S, open_admin, settle
from headrace.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, command_group, examples
from headrace.cli.screen import print_facts, print_json, print_table

app = command_group("Look at the cluster.", "headrace cluster info", "headrace cluster info --json")


@app.callback()
def cluster() -> None:
    """Keeps `info` a subcommand: a group with one command would otherwise become that command."""


@app.command(epilog=examples("headrace cluster info", "headrace cluster info -b queue.example.com:9092 --json"))
def info(broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show the cluster's id, its controller and its brokers."""
    admin = open_admin(broker)
    described = settle(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S), "cannot describe the cluster")
    topics = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics.values()
    controller = described.controller.id if described.controller else None
    document: dict[str, Any] = {
        "cluster_id": described.cluster_id,
        "controller": controller,
        "brokers": [
            {"id": node.id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in sorted(described.nodes, key=lambda node: node.id)
        ],
        "topics": len(topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
    }
    if as_json:
        print_json(document)
        return
    print_facts(
        [
            ("cluster id", document["cluster_id"]),
            ("controller", controller),
            ("topics", document["topics"]),
            ("partitions", document["partitions"]),
        ]
    )
    print_table(
        ["broker", "host", "port", "rack"],
        [(node["id"], node["host"], node["port"], node["rack"]) for node in document["brokers"]],
        right=["broker", "port"],
    )
