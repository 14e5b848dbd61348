"""`headrace cluster balance`: moves partitions so that brokers have equal shares of leaders, replicas and bytes.

Registered by cluster.py. Gets the current placement from the cluster (`cli/moves.py`), computes the plan with
`cluster/balance.py`, and carries it out a few partitions at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import DEFAULT_BROKER, BrokerOption, JsonOption, examples
from headrace.cli.screen import plural, print_json, print_table, remark
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from headrace.cli.moves import Moves
    from headrace.cluster.balance import Share

EXAMPLES = examples("headrace cluster balance --dry-run", "headrace cluster balance --at-once 5")


def balance(
    broker: BrokerOption = DEFAULT_BROKER,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would move, but move nothing.")] = False,
    at_once: Annotated[
        int, typer.Option("--at-once", min=1, metavar="N", help="How many partitions to move at the same time.")
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Move partitions until all brokers have equal shares of leaders, replicas and bytes."""
    from headrace.cli.direct_requests import DirectRequests
    from headrace.cli.moves import carry_out, standing, under_way
    from headrace.cluster.balance import moved, plan, shares

    with DirectRequests(broker) as requests:
        busy = under_way(requests)
        if busy:
            raise Failure(f"{plural(len(busy), 'partition')} moving already: try again when that has finished")
        partitions, racks = standing(requests)
        moves = plan(partitions, racks)
        before, after = shares(partitions, sorted(racks)), shares(moved(partitions, moves), sorted(racks))
        if not as_json:
            _show(before, after)
        if not dry_run and moves:
            carry_out(requests, moves, at_once)
    if as_json:
        print_json(_document(before, after, moves))
    elif not moves:
        remark("the cluster is in balance: nothing to move")
    elif dry_run:
        remark(f"{plural(len(moves), 'partition')} would change; run without --dry-run to do it")


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


def _document(before: dict[int, Share], after: dict[int, Share], moves: Moves) -> dict[str, Any]:
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
