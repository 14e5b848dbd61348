"""Computes the moves that balance a cluster: leaders, replicas and bytes per broker. Pure.

`headrace cluster balance` asks the brokers what they hold, calls this for a plan, and executes it as reassignments. As
far as the partitions allow it, the numbers of replicas and leaders per broker then differ by at most one, and bytes by
at most a tenth of the mean. Three greedy steps keep the number of moves small: replicas move from the fullest to the
emptiest broker, larger replicas are swapped for smaller ones, and for the leaders the replica lists are reordered,
which moves no data. No step reduces the number of racks of a partition.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from headrace.cluster.placement import Racks
from headrace.model.topic_partition import TopicPartition

_Led = dict[int, dict[TopicPartition, None]]  # which partitions each broker should lead
_WORTH_IT = 0.95  # a swap that leaves a larger share of a difference is not worth it
_SAMPLE = 50  # partitions to try when searching for a swap,
_NEIGHBOURS = 8  # each with this many of about the right size


class Held(Struct, frozen=True):
    """A partition in its current state."""

    topic: str
    index: int
    replicas: tuple[int, ...]  # the first one should lead
    bytes: int = 0  # of one replica

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)


class Share(Struct, frozen=True):
    """What one broker leads and holds."""

    leads: int
    holds: int
    bytes: int


def shares(partitions: Sequence[Held], brokers: Sequence[int]) -> dict[int, Share]:
    leads, holds, size = dict.fromkeys(brokers, 0), dict.fromkeys(brokers, 0), dict.fromkeys(brokers, 0)
    for partition in partitions:
        for broker in partition.replicas:
            holds[broker] = holds.get(broker, 0) + 1
            size[broker] = size.get(broker, 0) + partition.bytes
        leads[partition.replicas[0]] = leads.get(partition.replicas[0], 0) + 1
    return {broker: Share(leads.get(broker, 0), holds[broker], size[broker]) for broker in holds}


def plan(partitions: Sequence[Held], racks: Racks) -> dict[TopicPartition, tuple[int, ...]]:
    """The new replicas of every partition that changes. Partitions with a replica on a dead broker are skipped."""
    balance = _Balance([partition for partition in partitions if set(partition.replicas) <= racks.keys()], racks)
    balance.level_replicas()
    balance.level_bytes()
    balance.level_leaders()
    before = {partition.place: partition.replicas for partition in partitions}
    return {place: tuple(replicas) for place, replicas in balance.replicas.items() if tuple(replicas) != before[place]}


def moved(partitions: Sequence[Held], moves: Mapping[TopicPartition, tuple[int, ...]]) -> list[Held]:
    """The partitions as they are after the plan."""
    return [replace(held, replicas=moves.get(held.place, held.replicas)) for held in partitions]


class _Balance:
    """A plan under construction."""

    def __init__(self, partitions: Sequence[Held], racks: Racks) -> None:
        self.replicas = {partition.place: list(partition.replicas) for partition in partitions}
        self._racks = racks
        self._bytes = {partition.place: partition.bytes for partition in partitions}
        # By broker, with their sizes, the smallest first.
        self._held: dict[int, list[tuple[int, TopicPartition]]] = {broker: [] for broker in sorted(racks)}
        for partition in sorted(partitions, key=lambda one: (one.bytes, one.place)):
            for broker in partition.replicas:
                self._held[broker].append((partition.bytes, partition.place))
        self._size = {broker: sum(size for size, _ in held) for broker, held in self._held.items()}

    # --- replicas ---------------------------------------------------------------------------------------------------

    def level_replicas(self) -> None:
        """Moves replicas from the broker with most to the one with fewest, until they differ by at most one."""
        count = {broker: len(held) for broker, held in self._held.items()}
        while any(self._move_one(full, empty) for full, empty in _apart(count, 1)):
            count = {broker: len(held) for broker, held in self._held.items()}

    def _move_one(self, full: int, empty: int) -> bool:
        """Moves one replica, chosen so that the bytes of the two brokers get closer."""
        half = (self._size[full] - self._size[empty]) // 2
        for place in _nearest(self._held[full], half):
            if self._may_move(place, full, empty):
                self._move(place, full, empty)
                return True
        return False

    # --- bytes ------------------------------------------------------------------------------------------------------

    def level_bytes(self) -> None:
        """Swaps replicas between brokers, until bytes differ by at most a tenth of the mean or no swap helps."""
        tolerated = sum(self._size.values()) // max(1, len(self._size)) // 10
        while any(self._swap_one(full, empty) for full, empty in _apart(self._size, tolerated)):
            pass

    def _swap_one(self, full: int, empty: int) -> bool:
        """Does the best of several swaps that bring the bytes of the two brokers closer."""
        gap = self._size[full] - self._size[empty]
        best: tuple[int, TopicPartition, TopicPartition] | None = None
        for larger in self._candidates(full, empty, gap // 2):
            size = self._bytes[larger]
            for smaller in islice(self._near(empty, full, size - gap // 2), _NEIGHBOURS):
                left_over = abs(gap - 2 * (size - self._bytes[smaller]))
                limit = gap * _WORTH_IT if best is None else best[0]
                if left_over < limit and self._may_swap(larger, smaller, full, empty):
                    best = left_over, larger, smaller
        if best is None:
            return False
        self._swap(best[1], best[2], full, empty)
        return True

    def _candidates(self, broker: int, other: int, size: int) -> Iterator[TopicPartition]:
        """Partitions of about this size, and some of every size, that the other broker does not hold."""
        yield from islice(self._near(broker, other, size), _SAMPLE)
        held = self._held[broker]
        some = (place for _, place in held[:: max(1, len(held) // _SAMPLE)])
        yield from (place for place in some if other not in self.replicas[place])

    def _near(self, broker: int, other: int, size: int) -> Iterator[TopicPartition]:
        return (place for place in _nearest(self._held[broker], size) if other not in self.replicas[place])

    # --- leaders ----------------------------------------------------------------------------------------------------

    def level_leaders(self) -> None:
        """Reorders replicas while that helps, then swaps; until the numbers of leaders differ by at most one."""
        led: _Led = {broker: {} for broker in self._held}
        for place, replicas in self.replicas.items():
            led[replicas[0]][place] = None
        while (chain := self._chain(led)) is not None or self._swap_leader(led):
            for place, leader in chain or ():
                replicas = self.replicas[place]
                del led[replicas[0]][place]
                led[leader][place] = None
                replicas.remove(leader)
                replicas.insert(0, leader)

    def _chain(self, led: _Led) -> list[tuple[TopicPartition, int]] | None:
        """The shortest chain that moves one leadership from a broker to one that leads at least two fewer."""
        for start in sorted(led, key=lambda broker: -len(led[broker])):
            reached: dict[int, tuple[TopicPartition, int]] = {}  # broker -> the partition it would take, and from whom
            waiting = deque([start])
            while waiting:
                broker = waiting.popleft()
                if len(led[start]) - len(led[broker]) > 1:
                    return list(_steps(reached, start, broker))
                for place in led[broker]:
                    for other in self.replicas[place][1:]:
                        if other != start and other not in reached:
                            reached[other] = (place, broker)
                            waiting.append(other)
                    if len(reached) == len(led) - 1:
                        break
        return None

    def _swap_leader(self, led: _Led) -> bool:
        """Swaps a partition that one broker leads for one that the other only follows."""
        for much, little in _apart({broker: len(places) for broker, places in led.items()}, 1):
            for place in led[much]:
                for followed in islice(self._near(little, much, self._bytes[place]), _NEIGHBOURS):
                    if followed not in led[little] and self._may_swap(place, followed, much, little):
                        self._swap(place, followed, much, little)
                        del led[much][place]
                        led[little][place] = None
                        return True
        return False

    # --- one replica ------------------------------------------------------------------------------------------------

    def _may_move(self, place: TopicPartition, source: int, target: int) -> bool:
        replicas = self.replicas[place]
        if target in replicas:
            return False
        after = [target if broker == source else broker for broker in replicas]
        return self._racks_of(after) >= self._racks_of(replicas)

    def _may_swap(self, one: TopicPartition, other: TopicPartition, source: int, target: int) -> bool:
        return self._may_move(one, source, target) and self._may_move(other, target, source)

    def _racks_of(self, replicas: Sequence[int]) -> int:
        return len({self._racks[broker] or broker for broker in replicas})

    def _swap(self, one: TopicPartition, other: TopicPartition, source: int, target: int) -> None:
        self._move(one, source, target)
        self._move(other, target, source)

    def _move(self, place: TopicPartition, source: int, target: int) -> None:
        self.replicas[place] = [target if broker == source else broker for broker in self.replicas[place]]
        entry = (self._bytes[place], place)
        del self._held[source][bisect_left(self._held[source], entry)]
        insort(self._held[target], entry)
        self._size[source] -= entry[0]
        self._size[target] += entry[0]


def _apart(amounts: Mapping[int, int], tolerated: int) -> list[tuple[int, int]]:
    """Pairs of brokers (more, fewer) that differ by more than tolerated; the largest difference first."""
    order = sorted(amounts, key=lambda broker: amounts[broker])
    pairs = [(full, empty) for full in order for empty in order if amounts[full] - amounts[empty] > tolerated]
    return sorted(pairs, key=lambda pair: amounts[pair[1]] - amounts[pair[0]])


def _nearest(held: Sequence[tuple[int, TopicPartition]], size: int) -> Iterator[TopicPartition]:
    """The partitions, in order of how close they are to this size."""
    above = bisect_left(held, (size,))
    below = above - 1
    while below >= 0 or above < len(held):
        if below < 0 or (above < len(held) and held[above][0] - size < size - held[below][0]):
            yield held[above][1]
            above += 1
        else:
            yield held[below][1]
            below -= 1


def _steps(
    reached: Mapping[int, tuple[TopicPartition, int]], start: int, end: int
) -> Iterator[tuple[TopicPartition, int]]:
    """Which broker takes which partition, from the end of the chain to its start."""
    broker = end
    while broker != start:
        place, before = reached[broker]
        yield place, broker
        broker = before
