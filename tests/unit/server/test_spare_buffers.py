"""Large buffers are made when they are needed, no more of them than allowed, and used again."""

from headrace.server.spare_buffers import SpareBuffers


def test_none_is_made_before_one_is_needed() -> None:
    assert SpareBuffers(2).free == []


def test_no_more_are_made_than_there_may_be() -> None:
    spare = SpareBuffers(2)
    assert spare.borrow() is not None
    assert spare.borrow() is not None
    assert spare.borrow() is None


def test_one_that_came_back_is_lent_again() -> None:
    spare = SpareBuffers(1)
    first = spare.borrow()
    assert first is not None
    spare.give_back(first)
    assert spare.borrow() is first
