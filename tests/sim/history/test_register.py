"""The quick test of a register says what a search through every order says."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.history.register import Cluster, Span, conflicts


def some_order_explains(clusters: list[Cluster]) -> bool:
    """Try every order of the operations that keeps what ended before what began later."""
    operations = [(cluster.write, cluster.value, True) for cluster in clusters]
    operations += [(read, cluster.value, False) for cluster in clusters for read in cluster.reads]
    for order in permutations(operations):
        if any(later[0].end < earlier[0].start for at, earlier in enumerate(order) for later in order[at + 1 :]):
            continue
        held = None
        for _, value, is_write in order:
            if is_write:
                held = value
            elif held != value:
                break
        else:
            return True
    return False


@st.composite
def histories(draw: st.DrawFn) -> list[Cluster]:
    """Up to three writes and six operations in all, with every moment used once."""
    reads = draw(st.lists(st.integers(0, 2), max_size=3))
    writers = 3 if len(reads) < 3 else 2
    count = writers + len(reads)
    moments = draw(st.permutations(range(2 * count)))
    spans = [Span(*sorted(moments[2 * number : 2 * number + 2])) for number in range(count)]
    clusters = [Cluster(f"v{number}", spans[number]) for number in range(writers)]
    for number, which in enumerate(reads):
        clusters[which % writers].reads.append(spans[writers + number])
    return clusters


@settings(max_examples=200, deadline=None)
@given(clusters=histories())
def test_clustering_agrees_with_a_search_through_every_order(clusters: list[Cluster]) -> None:
    assert (not conflicts(clusters)) == some_order_explains(clusters)
