"""The window of ids says what a plain list of everything says, within its time and its memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.id_window import NO_TRANSACTION, IdWindow

WINDOW_MS = 100
IDS = [bytes([number]) * 16 for number in range(12)]

steps = st.lists(
    st.tuples(
        st.sampled_from(["plain", "inside", "commit", "abort"]),
        st.integers(0, 40),  # time that passes before
        st.sampled_from([7, 8]),
        st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True),
    ),
    max_size=40,
)


@given(steps)
def test_it_knows_what_a_list_of_everything_knows(story: list[tuple[str, int, int, list[bytes]]]) -> None:
    window = IdWindow(WINDOW_MS, 1 << 20)
    counted: list[tuple[bytes, int]] = []
    pending: dict[int, list[bytes]] = {7: [], 8: []}
    now_ms = 0
    for kind, passed_ms, producer, digests in story:
        now_ms += passed_ms
        if kind == "plain":
            window.add(digests, NO_TRANSACTION, now_ms)
            counted += [(digest, now_ms) for digest in digests]
        elif kind == "inside":
            window.add(digests, producer, now_ms)
            pending[producer] += digests
        else:
            window.end(producer, commit=kind == "commit", now_ms=now_ms)
            counted += [(digest, now_ms) for digest in pending[producer] if kind == "commit"]
            pending[producer] = []
        for digest in IDS:
            lately = any(known == digest and now_ms - at < WINDOW_MS for known, at in counted)
            for transaction in (NO_TRANSACTION, 7, 8):
                assert window.knows(digest, transaction, now_ms) == (lately or digest in pending.get(transaction, []))
    window.expire(now_ms + WINDOW_MS)
    assert len(window) == sum(len(set(ids)) for ids in pending.values())
    assert window.forgotten == 0


@given(steps, st.integers(1, 8))
def test_it_never_holds_more_than_it_may_and_counts_what_it_gives_up(
    story: list[tuple[str, int, int, list[bytes]]], most: int
) -> None:
    window = IdWindow(WINDOW_MS, most * 192)
    for kind, _, producer, digests in story:
        if kind in ("plain", "inside"):
            fresh = [digest for digest in digests if not window.knows(digest, NO_TRANSACTION, 0)]
            window.add(fresh, NO_TRANSACTION if kind == "plain" else producer, 0)
        else:
            window.end(producer, commit=kind == "commit", now_ms=0)
        assert len(window) <= most


def test_the_oldest_go_first() -> None:
    window = IdWindow(WINDOW_MS, 64 * 192)
    for number in range(100):
        window.add([number.to_bytes(16, "big")], NO_TRANSACTION, number // 10)
    known = [number for number in range(100) if window.knows(number.to_bytes(16, "big"), NO_TRANSACTION, 10)]
    assert known == list(range(100 - len(known), 100))
    assert window.forgotten == 100 - len(known)
    assert 60 <= len(known) <= 64
