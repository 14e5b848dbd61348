"""Which of several transfers make too little progress while others wait for what they hold.

Pure: the listener says what there is at each look, and closes what is returned. A transfer must, in any ten seconds,
move either 10 MiB or all that it had to move when they began: a slow client with little to move is never too slow.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

PATIENCE_S = 10.0
LEAST_BYTES = 10 << 20  # in that time


class Progress:
    def __init__(self) -> None:
        self._marks: dict[Hashable, tuple[float, int]] = {}  # by when which count has to be reached

    def look(self, now_s: float, transfers: Mapping[Hashable, tuple[int, int]]) -> list[Hashable]:
        """The stalled ones of `transfers`: bytes moved so far, and bytes still to be moved. One that is not there at
        some look begins anew at the next."""
        stalled: list[Hashable] = []
        marks: dict[Hashable, tuple[float, int]] = {}
        for key, (moved, left) in transfers.items():
            due_s, goal = self._marks.get(key, (0.0, 0))
            if moved >= goal:
                due_s, goal = now_s + PATIENCE_S, moved + max(1, min(left, LEAST_BYTES))
            elif now_s >= due_s:
                stalled.append(key)
                continue
            marks[key] = due_s, goal
        self._marks = marks
        return stalled
