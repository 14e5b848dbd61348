"""`headrace cluster`: show the brokers, balance partitions among them, and turn a standalone broker into a cluster.

Called by main. Shows what DescribeCluster and Metadata return.
"""

from typing import Any

from headrace.cli import adopt, balance
from headrace.cli.connection import REQUEST_TIMEOUT_S, open_admin, settle
from headrace.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, command_group, examples
from headrace.cli.screen import print_facts, print_json, print_table

app = command_group(
    "Show or balance the cluster, or start one.",
    "headrace cluster info",
    "headrace cluster adopt --data ./data --zookeeper zk1:2181/headrace",
)
app.command("adopt", epilog=adopt.EXAMPLES)(adopt.adopt)
app.command("balance", epilog=balance.EXAMPLES)(balance.balance)


@app.command(epilog=examples("headrace cluster info", "headrace cluster info -b queue.example.com:9092 --json"))
def info(broker: BrokerOption = DEFAULT_BROKER, as_json: JsonOption = False) -> None:
    """Show the cluster's id, controller and brokers."""
    admin = open_admin(broker)
    described = settle(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S), "cannot describe the cluster")
    topics = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics.values()
    states = [state for topic in topics for state in topic.partitions.values()]
    controller = described.controller.id if described.controller else None
    document: dict[str, Any] = {
        "cluster_id": described.cluster_id,
        "controller": controller,
        "brokers": [
            {
                "id": node.id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "leads": sum(state.leader == node.id for state in states),
                "replicas": sum(node.id in state.replicas for state in states),
            }
            for node in sorted(described.nodes, key=lambda node: node.id)
        ],
        "topics": len(topics),
        "partitions": len(states),
        "offline": sum(state.leader < 0 for state in states),
        "under_replicated": sum(len(state.isrs) < len(state.replicas) for state in states),
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
            ("without a leader", document["offline"]),
            ("out of sync", document["under_replicated"]),
        ]
    )
    print_table(
        ["broker", "host", "port", "rack", "leads", "replicas"],
        [tuple(node.values()) for node in document["brokers"]],
        right=["broker", "port", "leads", "replicas"],
    )
