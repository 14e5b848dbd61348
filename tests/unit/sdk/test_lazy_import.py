"""The short imports work, and cost nothing to whoever does not use them."""

import subprocess
import sys

import headrace
import headrace.sdk


def loaded(program: str) -> set[str]:
    """The modules that are loaded after a program."""
    printing = f"{program}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", printing], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_the_nouns_can_be_imported_from_headrace() -> None:
    from headrace import AsyncConsumer, AsyncProducer, Consumer, Message, Producer, exactly_once

    nouns = (AsyncConsumer, AsyncProducer, Consumer, Message, Producer, exactly_once)
    assert all(getattr(headrace.sdk, noun.__name__) is noun for noun in nouns)
    assert set(headrace.__all__) <= set(dir(headrace))


def test_a_name_that_is_not_there_is_an_ordinary_mistake() -> None:
    assert not hasattr(headrace, "Queue")


def test_importing_headrace_loads_no_client() -> None:
    assert not {"confluent_kafka", "headrace.sdk"} & loaded("import headrace")


def test_a_broker_loads_no_sdk() -> None:
    assert not {"confluent_kafka", "headrace.sdk"} & loaded("import headrace.server.broker")


def test_the_sdk_loads_no_broker() -> None:
    modules = loaded("from headrace import Producer")
    assert "headrace.sdk.producer" in modules
    assert not {name for name in modules if name.startswith(("headrace.server", "headrace.log", "headrace.api"))}
