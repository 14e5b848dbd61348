"""The uniform assignor: all members get about the same number of partitions, and as few as possible move.

1. Every member keeps what the last assignment gave it, if it still subscribes to it and it still exists.
2. A partition without an owner goes to the subscriber with the fewest partitions.
3. A member with at least two more partitions than another subscriber of one of them gives that one up.

If all members subscribe to the same topics, the numbers differ by at most one and no partition moves unnecessarily.
Otherwise no single move could make the numbers more even. Topics with the same subscribers are handled together, so a
group of members of one kind is balanced in one pass.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace

from headrace.coordinators.groups.assignors.wishes import Plan, Wish

_Part = tuple[int, int]  # a partition: the number of its topic, and its own


def assign_uniform(wishes: Mapping[str, Wish], counts: Mapping[uuid.UUID, int]) -> Plan:
    members = sorted(wishes)
    topics = sorted(counts, key=lambda topic_id: topic_id.bytes)
    families = _families([wishes[member].topics for member in members], topics)
    loads = [0] * len(members)
    shares: list[dict[int, set[int]]] = [{} for _ in members]
    homeless = _keep([wishes[member] for member in members], topics, counts, shares, loads)
    # The partitions with the fewest takers come first, since there is the least choice for them.
    order = sorted(families, key=lambda takers: (len(takers), takers))
    for takers in order:
        _give(takers, [place for number in families[takers] for place in homeless.get(number, ())], shares, loads)
    uneven = True
    while uneven:  # every move reduces the sum of the squared loads, so this terminates
        moves = [_level(takers, families[takers], shares, loads) for takers in order]
        uneven = len(order) > 1 and any(moves)
    return {
        member: {topics[number]: frozenset(held) for number, held in share.items() if held}
        for member, share in zip(members, shares, strict=True)
    }


def _families(wanted: list[frozenset[uuid.UUID]], topics: list[uuid.UUID]) -> dict[tuple[int, ...], list[int]]:
    """Topics (by number) that have the same takers (members by number)."""
    takers: dict[uuid.UUID, list[int]] = {topic_id: [] for topic_id in topics}
    for member, mine in enumerate(wanted):
        for topic_id in mine:
            if topic_id in takers:
                takers[topic_id].append(member)
    families: dict[tuple[int, ...], list[int]] = {}
    for number, topic_id in enumerate(topics):
        if takers[topic_id]:
            families.setdefault(tuple(takers[topic_id]), []).append(number)
    return families


def _keep(
    wishes: list[Wish],
    topics: list[uuid.UUID],
    counts: Mapping[uuid.UUID, int],
    shares: list[dict[int, set[int]]],
    loads: list[int],
) -> dict[int, list[_Part]]:
    """Leaves everybody what they have and may keep; the rest is returned, by topic."""
    free = [set(range(counts[topic_id])) for topic_id in topics]
    numbers = {topic_id: number for number, topic_id in enumerate(topics)}
    for member, wish in enumerate(wishes):
        for topic_id, held in wish.has.items():
            number = numbers.get(topic_id)
            if number is None or topic_id not in wish.topics:
                continue
            kept = free[number] & held
            if kept:
                free[number] -= kept
                shares[member][number] = kept
                loads[member] += len(kept)
    return {number: [(number, partition) for partition in sorted(left)] for number, left in enumerate(free) if left}


def _give(takers: tuple[int, ...], places: list[_Part], shares: list[dict[int, set[int]]], loads: list[int]) -> None:
    poorest = [(loads[member], member) for member in takers]
    heapify(poorest)
    for number, partition in places:
        load, member = poorest[0]
        shares[member].setdefault(number, set()).add(partition)
        loads[member] = load + 1
        heapreplace(poorest, (load + 1, member))


def _level(takers: tuple[int, ...], family: list[int], shares: list[dict[int, set[int]]], loads: list[int]) -> bool:
    """Moves partitions of these topics from the richest to the poorest taker; False when nothing was to be done."""
    low = min(loads[member] for member in takers)
    if max(loads[member] for member in takers) - low <= 1:
        return False
    offers: dict[int, list[_Part]] = {}  # what each could hand over, the last first: partition by partition, so that
    for member in takers:  # it is not all of one topic that goes
        if loads[member] > low + 1:
            mine = [(partition, number) for number in family for partition in shares[member].get(number, ())]
            offers[member] = [(number, partition) for partition, number in sorted(mine)]
    richest = [(-loads[member], member) for member, mine in offers.items() if mine]
    poorest = [(loads[member], member) for member in takers]
    heapify(richest)
    heapify(poorest)
    moved = False
    while richest:
        giver, taker = richest[0][1], poorest[0][1]
        if poorest[0][0] != loads[taker]:  # it has given since it was put there
            heapreplace(poorest, (loads[taker], taker))
            continue
        if loads[giver] - loads[taker] <= 1:
            break
        number, partition = offers[giver].pop()
        shares[giver][number].remove(partition)
        shares[taker].setdefault(number, set()).add(partition)
        loads[giver] -= 1
        loads[taker] += 1
        moved = True
        heapreplace(poorest, (loads[taker], taker))
        heappop(richest)
        if offers[giver]:
            heappush(richest, (-loads[giver], giver))
    return moved
