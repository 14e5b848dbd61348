"""`headrace cluster balance`: every broker gets its share of leaders, replicas and bytes.

Registered by cluster.py. Asks the cluster what stands where and how large it is, has `cluster/balance.py` make the
plan, and carries it out as reassignments, a few at a time, until all have arrived. Whatever happens to this command,
every move that has begun is the cluster's own and goes on.
"""

import time
from typing import Annotated, Any

import typer

from headrace.cli.direct_requests import DirectRequests
from headrace.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, examples
from headrace.cli.screen import plural, print_json, print_table, remark
from headrace.cluster.balance import Held, Place, Share, plan, shares
from headrace.model.failure import Failure
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

EXAMPLES = examples("headrace cluster balance --dry-run", "headrace cluster balance --at-once 5")

_DESCRIBE_LOG_DIRS, _ELECT_LEADERS, _ALTER_REASSIGNMENTS, _LIST_REASSIGNMENTS = 35, 43, 45, 46
_PREFERRED = 0
_LOOK_S = 0.5
_TIMEOUT_MS = 20_000


def balance(
    broker: BrokerOption = DEFAULT_BROKER,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would move, and move nothing.")] = False,
    at_once: Annotated[int, typer.Option("--at-once", min=1, metavar="N", help="Partitions that move together.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Move partitions until brokers lead and hold equally much."""
    with DirectRequests(broker) as requests:
        if _moving(requests):
            raise Failure("partitions are being moved already; wait until `headrace cluster balance` can see them all")
        partitions, racks = _standing(requests)
        moves = plan(partitions, racks)
        before = shares(partitions, sorted(racks))
        after = shares([_moved(held, moves) for held in partitions], sorted(racks))
        if not as_json:
            _show(before, after)
        if not dry_run and moves:
            _carry_out(requests, moves, at_once)
            requests.anywhere(
                _ELECT_LEADERS, 2, Message(election_type=_PREFERRED, topic_partitions=None, timeout_ms=_TIMEOUT_MS)
            )
    if as_json:
        print_json(_document(before, after, moves))
    elif not moves:
        remark("the cluster is in balance: nothing to move")
    elif dry_run:
        remark(f"{plural(len(moves), 'partition')} would change; run without --dry-run to do it")


def _standing(requests: DirectRequests) -> tuple[list[Held], dict[int, str | None]]:
    cluster = requests.metadata()
    sizes: dict[Place, int] = {}
    for node in cluster.brokers:
        answer = requests.call((node.host, node.port), _DESCRIBE_LOG_DIRS, 2, Message(topics=None))
        for topic in (topic for folder in answer.results for topic in folder.topics):
            for found in topic.partitions:
                place = topic.name, found.partition_index
                sizes[place] = max(sizes.get(place, 0), found.partition_size)
    partitions = [
        Held(topic.name, one.partition_index, tuple(one.replica_nodes), sizes.get((topic.name, one.partition_index), 0))
        for topic in cluster.topics
        for one in topic.partitions
    ]
    return partitions, {node.node_id: node.rack for node in cluster.brokers}


def _moved(held: Held, moves: dict[Place, tuple[int, ...]]) -> Held:
    return Held(held.topic, held.index, moves.get(held.place, held.replicas), held.bytes)


def _carry_out(requests: DirectRequests, moves: dict[Place, tuple[int, ...]], at_once: int) -> None:
    waiting = list(moves)
    told = -1
    while True:
        moving = _moving(requests)
        starting = waiting[: max(0, at_once - len(moving))]
        if starting:
            del waiting[: len(starting)]
            _begin(requests, {place: moves[place] for place in starting})
            continue
        arrived = len(moves) - len(waiting) - len(moving)
        if arrived != told:
            told = arrived
            remark(f"{arrived} of {plural(len(moves), 'partition')} in place")
        if arrived == len(moves):
            return
        time.sleep(_LOOK_S)


def _begin(requests: DirectRequests, moves: dict[Place, tuple[int, ...]]) -> None:
    topics: dict[str, list[Message]] = {}
    for (topic, index), replicas in moves.items():
        topics.setdefault(topic, []).append(Message(partition_index=index, replicas=list(replicas)))
    asked = [Message(name=name, partitions=partitions) for name, partitions in topics.items()]
    answer = requests.anywhere(_ALTER_REASSIGNMENTS, 0, Message(topics=asked, timeout_ms=_TIMEOUT_MS))
    if answer.error_code != ErrorCode.none:
        raise Failure(f"the cluster does not move anything now: {answer.error_message or answer.error_code}")
    for topic in answer.responses:
        for told in topic.partitions:
            if told.error_code not in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):  # deleted meanwhile
                why = told.error_message or ErrorCode(told.error_code).name
                raise Failure(f"{topic.name} partition {told.partition_index} cannot be moved: {why}")


def _moving(requests: DirectRequests) -> set[Place]:
    answer = requests.anywhere(_LIST_REASSIGNMENTS, 0, Message(topics=None, timeout_ms=_TIMEOUT_MS))
    return {(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions}


def _show(before: dict[int, Share], after: dict[int, Share]) -> None:
    columns = ["broker", "leads", "then", "replicas", "then", "bytes", "then"]
    print_table(
        columns,
        [
            (number, was.leads, after[number].leads, was.holds, after[number].holds, was.bytes, after[number].bytes)
            for number, was in before.items()
        ],
        right=columns,
    )


def _document(before: dict[int, Share], after: dict[int, Share], moves: dict[Place, tuple[int, ...]]) -> dict[str, Any]:
    def told(found: dict[int, Share]) -> list[dict[str, int]]:
        return [
            {"broker": number, "leads": share.leads, "replicas": share.holds, "bytes": share.bytes}
            for number, share in found.items()
        ]

    return {
        "before": told(before),
        "after": told(after),
        "moves": [
            {"topic": topic, "partition": index, "replicas": list(replicas)}
            for (topic, index), replicas in moves.items()
        ],
    }
