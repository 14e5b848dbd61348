"""The simple assignor of share groups (KIP-932): all members work, and every partition has somebody who works on it.

With fewer members than partitions each partition goes to one member, otherwise to as many as are needed to give every
member something to do. Where all members subscribe to the same topics, every partition has the same number of members,
and the numbers of partitions of two members differ by one at most. Otherwise that holds for each topic and its
subscribers. As many partitions as possible stay where they are.

Members with more than their share give up partitions first, then what is short of members is handed out. If the only
member that could take one more has this partition already, it swaps with another member; since shares differ by one at
most, such another member always exists.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from headrace.coordinators.groups.assignors.wishes import Plan, Wish

_Place = tuple[uuid.UUID, int]
_Held = dict[str, set[_Place]]  # by member


def assign_simple(wishes: Mapping[str, Wish], partitions: Mapping[uuid.UUID, frozenset[int]]) -> Plan:
    """`partitions`: those that may be given out, by topic."""
    members = sorted(wishes)
    held: _Held = {member: set() for member in members}
    wanted = {wishes[member].topics.intersection(partitions) for member in members}
    if len(wanted) == 1:
        groups = [sorted(wanted.pop(), key=lambda topic_id: topic_id.bytes)]
    else:
        groups = [[topic_id] for topic_id in sorted(partitions, key=lambda topic_id: topic_id.bytes)]
    for topics in groups:
        takers = [member for member in members if wishes[member].topics.issuperset(topics)]
        places = [(topic_id, index) for topic_id in topics for index in sorted(partitions[topic_id])]
        if takers and places:
            for member, mine in _share_out(takers, places, wishes).items():
                held[member] |= mine
    return {member: _parts(mine) for member, mine in held.items()}


def _share_out(members: Sequence[str], places: Sequence[_Place], wishes: Mapping[str, Wish]) -> _Held:
    each = -(-len(members) // len(places))  # members of one partition
    valid = set(places)
    held = {member: _places(wishes[member]) & valid for member in members}
    shares = _shares(held, each * len(places))
    takers: dict[_Place, set[str]] = {place: set() for place in places}
    for member, mine in held.items():
        for place in mine:
            takers[place].add(member)
    _take_back(held, shares, takers, each)
    short = [member for member in members if len(held[member]) < shares[member]]
    for place in places:
        while len(takers[place]) < each:
            richer = _give(place, short, held, takers)
            if len(held[richer]) == shares[richer]:
                short.remove(richer)
    return held


def _shares(held: _Held, total: int) -> dict[str, int]:
    """How many partitions each member shall have; those that have the most may have one more than others."""
    least, more = divmod(total, len(held))
    order = sorted(held, key=lambda member: (-len(held[member]), member))
    return {member: least + (number < more) for number, member in enumerate(order)}


def _take_back(held: _Held, shares: Mapping[str, int], takers: dict[_Place, set[str]], each: int) -> None:
    """Nobody keeps more than their share, no partition more members than it shall have."""
    for member, mine in held.items():
        surplus = len(mine) - shares[member]
        if surplus > 0:
            for place in sorted(mine, key=lambda place: (-len(takers[place]), place))[:surplus]:
                mine.remove(place)
                takers[place].remove(member)
    for place, having in takers.items():
        for member in sorted(having, key=lambda member: (-len(held[member]), member))[: max(0, len(having) - each)]:
            having.remove(member)
            held[member].remove(place)


def _give(place: _Place, short: Sequence[str], held: _Held, takers: dict[_Place, set[str]]) -> str:
    """Who has one more now."""
    taker = next((member for member in short if member not in takers[place]), None)
    richer = taker or short[0]
    if taker is None:  # whoever has room has it already: somebody else takes it, and gives another one in exchange
        having = held[richer]
        taker, given = next(
            (member, min(mine - having)) for member, mine in held.items() if place not in mine and mine - having
        )
        held[taker].remove(given)
        having.add(given)
        takers[given].remove(taker)
        takers[given].add(richer)
    held[taker].add(place)
    takers[place].add(taker)
    return richer


def _places(wish: Wish) -> set[_Place]:
    return {(topic_id, index) for topic_id, indexes in wish.has.items() for index in indexes}


def _parts(places: set[_Place]) -> dict[uuid.UUID, frozenset[int]]:
    parts: dict[uuid.UUID, set[int]] = {}
    for topic_id, index in sorted(places):
        parts.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in parts.items()}
