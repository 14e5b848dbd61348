"""T7: no transaction reads, through other transactions, from itself.

Nodes are transactions. A transaction that reads a message of another one comes after it. So does the next transaction
of the same client, and any transaction that begins after another has ended. A cycle among these is an error (G1c).
Cycles of writes alone (G0: two transactions interleaved differently in two partitions) are allowed in Kafka and only
counted.

Real-time order would need an edge for every pair; a chain of moments, one for each end, expresses the same with a few
edges per transaction. Called by `verdict.py`.
"""

from __future__ import annotations

from bisect import bisect_left

from sim.history.event import OK, READ_COMMITTED
from sim.history.invariants import Report
from sim.history.observed_log import ObservedLog, shown
from sim.history.operations import NEVER, Operations, Transaction


def check(ops: Operations, seen: ObservedLog, report: Report) -> None:
    txns = [txn for txn in ops.txns.values() if txn.status == OK or shown(seen, txn)]
    if not txns:
        return
    number = {txn.txn: node for node, txn in enumerate(txns)}
    edges = _order(txns)
    _reads(ops, txns, number, edges)
    for circle in circles(edges):
        names = [txns[node] for node in sorted(circle) if node < len(txns)]
        told = ", ".join(txn.txn for txn in names[:6])
        sentence = f"the transactions {told} read from each other in a circle"
        report.broken("T7", sentence, *(txn.begin for txn in names[:6]))
    if written := len(circles(_writes(ops, seen, number, len(txns)))):
        report.count("circles of writes between transactions (G0, allowed)", written)


def _order(txns: list[Transaction]) -> list[list[int]]:
    """Edges of process order and of real time; nodes from len(txns) on are moments."""
    ended = sorted((txn.end, node) for node, txn in enumerate(txns) if txn.end < NEVER)
    moments = [end for end, _ in ended]
    edges: list[list[int]] = [[] for _ in range(len(txns) + len(ended))]
    for place, (_, node) in enumerate(ended):
        edges[node].append(len(txns) + place)
        if place + 1 < len(ended):
            edges[len(txns) + place].append(len(txns) + place + 1)
    last: dict[str, int] = {}
    for node, txn in enumerate(txns):
        place = bisect_left(moments, txn.begin) - 1
        if place >= 0:
            edges[len(txns) + place].append(node)
        if txn.proc in last:
            edges[last[txn.proc]].append(node)
        last[txn.proc] = node
    return edges


def _reads(ops: Operations, txns: list[Transaction], number: dict[str, int], edges: list[list[int]]) -> None:
    for txn in txns:
        for event in txn.reads:
            if ops.isolation(event.proc) != READ_COMMITTED:
                continue
            for record in event.records or ():
                send = ops.sends.get(record.uid or "")
                writer = number.get(send.txn) if send is not None and send.txn is not None else None
                if writer is not None and writer != number[txn.txn]:
                    edges[writer].append(number[txn.txn])


def _writes(ops: Operations, seen: ObservedLog, number: dict[str, int], count: int) -> list[list[int]]:
    edges: list[list[int]] = [[] for _ in range(count)]
    for offsets in seen.log.values():
        before = None
        for off in sorted(offsets):
            send = ops.sends.get(offsets[off][0])
            node = number.get(send.txn) if send is not None and send.txn is not None else None
            if node is not None:
                if before is not None and before != node:
                    edges[before].append(node)
                before = node
    return edges


def circles(edges: list[list[int]]) -> list[list[int]]:
    """Strongly connected components of more than one node: Tarjan's algorithm, without recursion."""
    order = [-1] * len(edges)
    low = [0] * len(edges)
    on_path = [False] * len(edges)
    path: list[int] = []
    found: list[list[int]] = []
    count = 0
    for root in range(len(edges)):
        if order[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                order[node] = low[node] = count
                count += 1
                path.append(node)
                on_path[node] = True
            descended = False
            for place in range(at, len(edges[node])):
                target = edges[node][place]
                if order[target] < 0:
                    work.append((node, place + 1))
                    work.append((target, 0))
                    descended = True
                    break
                if on_path[target]:
                    low[node] = min(low[node], order[target])
            if descended:
                continue
            if low[node] == order[node]:
                component = []
                while True:
                    member = path.pop()
                    on_path[member] = False
                    component.append(member)
                    if member == node:
                        break
                if len(component) > 1:
                    found.append(component)
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return found
