"""How long the event loop stays awake: for as long as it pays, and not at the cost of others."""

from __future__ import annotations

from collections.abc import Callable

from headrace.server.vigil import Vigil

WATCH_S, LOOK_S, FAR_S = 0.000_1, 0.000_01, 0.01


class Loop:
    """Turns of an event loop that has nothing to do but to look, on a time that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []
        self.ways_given = 0
        self.vigil = Vigil(WATCH_S, lambda: self.now_s, self.call_soon, self.give_way)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def give_way(self) -> None:
        self.ways_given += 1

    def turn(self, seconds: float = LOOK_S) -> None:
        self.now_s += seconds
        due, self.soon = self.soon, []
        for callback in due:
            callback()

    def idle(self, seconds: float) -> float:
        """So long nothing comes; how much of that the loop was awake."""
        begin_s = self.now_s
        while self.soon and self.now_s - begin_s < seconds:
            self.turn()
        awake_s, self.now_s = self.now_s - begin_s, begin_s + seconds
        return awake_s

    def answers(self, count: int, apart_s: float) -> list[int]:
        """Which of so many answers found the loop awake when the next request came, or kept it so for a while."""
        kept = []
        for number in range(count):
            self.vigil.answered()
            if self.idle(apart_s):
                kept.append(number)
        return kept


def test_the_loop_is_awake_between_requests_that_follow_each_other() -> None:
    loop = Loop()
    assert loop.answers(1000, apart_s=5 * LOOK_S) == list(range(1000))


def test_it_sleeps_when_nothing_has_come_for_a_moment() -> None:
    loop = Loop()
    loop.vigil.answered()
    assert WATCH_S <= loop.idle(FAR_S) <= WATCH_S + 2 * LOOK_S
    assert not loop.soon


def test_it_gives_way_to_others_in_every_turn_in_which_it_stays_awake() -> None:
    loop = Loop()
    loop.vigil.answered()
    for turns in range(1, 6):
        loop.turn()
        assert loop.ways_given == turns


def test_requests_that_are_far_apart_are_seldom_waited_for() -> None:
    loop = Loop()
    assert loop.answers(200, apart_s=FAR_S) == [0, 2, 6, 14, 30, 62, 126, 190]


def test_it_is_awake_again_soon_after_requests_come_close_together() -> None:
    loop = Loop()
    loop.answers(200, apart_s=FAR_S)
    assert loop.answers(200, apart_s=5 * LOOK_S)[-100:] == list(range(100, 200))
    loop.idle(FAR_S)
    assert loop.answers(3, apart_s=5 * LOOK_S) == [1, 2], "what paid a moment ago is tried after one answer"


def lose_the_processor(loop: Loop) -> float:
    """To others, in the next watch; how long the loop rests after that."""
    while not loop.soon:
        loop.vigil.answered()
    loop.turn(0.001)
    lost_s = loop.now_s
    while not loop.soon:
        loop.vigil.answered()
        loop.now_s += 0.001
    return loop.now_s - lost_s


def test_it_rests_longer_and_longer_while_others_want_the_processor() -> None:
    loop = Loop()
    rests = [lose_the_processor(loop) for _ in range(10)]
    assert [round(rest, 2) for rest in rests] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]
    loop.answers(50, apart_s=5 * LOOK_S)
    assert round(lose_the_processor(loop), 2) == 1.0
    loop.answers(200, apart_s=5 * LOOK_S)
    assert round(lose_the_processor(loop), 2) == 0.01, "it had the processor for itself for a while"


def test_the_time_that_a_request_takes_is_not_taken_for_that_of_others() -> None:
    loop = Loop()
    for _ in range(10):
        loop.vigil.answered()
        loop.now_s += 0.000_25  # reading the next request and writing its records
        loop.vigil.answered()
        loop.turn()
        assert loop.soon
