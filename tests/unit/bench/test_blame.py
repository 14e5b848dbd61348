"""Whatever goes wrong while a broker is measured is told with that broker's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from bench.load import Generator, Order
from bench.peers import HeadraceRecipe, Peer
from bench.processes import Children

HANGS = "#!/bin/sh\nkill -ALRM $$\n"
FAILS = "#!/bin/sh\necho 'produce: no such topic' >&2\nexit 1\n"


def peer_in(folder: Path) -> Peer:
    return Peer(HeadraceRecipe(), Children(), folder)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("10 messages failed"), "headrace: 10 messages failed"),
        (TimeoutError(), "headrace: TimeoutError"),
        (RuntimeError("10 clients of headrace did not finish"), "10 clients of headrace did not finish"),
    ],
)
def test_an_error_gets_the_name_once(tmp_path: Path, error: Exception, told: str) -> None:
    with pytest.raises((RuntimeError, OSError)) as raised, peer_in(tmp_path).blamed():
        raise error
    assert str(raised.value) == told


def test_what_the_client_library_raises_gets_the_name_too(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^headrace: .*_TIMED_OUT"), peer_in(tmp_path).blamed():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (HANGS, "headrace: produce of 5 messages on events did not finish within 120 s"),
        (FAILS, "headrace: produce of 5 messages on events failed: produce: no such topic"),
    ],
)
def test_a_generator_that_does_not_finish_names_the_broker_and_the_work(tmp_path: Path, script: str, told: str) -> None:
    program = tmp_path / "load"
    program.write_text(script)
    program.chmod(0o700)
    with Children() as children, pytest.raises(RuntimeError) as raised:
        Generator(program, children).produce(peer_in(tmp_path), Order("events", 5))
    assert str(raised.value) == told
