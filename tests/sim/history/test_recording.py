"""Events keep their order whoever records them, survive a file, and are refused where they contradict themselves."""

from __future__ import annotations

import io
import itertools
import threading
from pathlib import Path

import pytest

from sim.history.__main__ import main
from sim.history.event import FAIL, INFO, BadHistory, Event, merge, parse, parse_all
from sim.history.operations import gather
from sim.history.outcomes import outcome
from sim.history.recorder import Recorder
from sim.history.verdict import judge
from tests.sim.history import tales_of_messages, tales_of_transactions
from tests.sim.history.story import Story, told


def test_threads_share_a_recorder_without_mixing_numbers_and_times() -> None:
    sink = io.StringIO()
    recorder = Recorder(itertools.count().__next__, sink)

    def work(proc: str) -> None:
        for number in range(300):
            recorder.ok(recorder.invoke(proc, "send", uid=f"{proc}/{number}"), off=number)

    threads = [threading.Thread(target=work, args=(f"p{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [event.n for event in recorder.events] == list(range(2400))
    assert [event.t_mono_ns for event in recorder.events] == list(range(2400))
    assert list(parse_all(sink.getvalue().splitlines())) == recorder.events
    assert all(recorder.events[event.op].uid == event.uid for event in recorder.events if event.op is not None)


@pytest.mark.parametrize("tale", [tales_of_messages.good_everything_arrives, tales_of_transactions.good_log])
def test_event_survives_its_line(tale: object) -> None:
    events = told(tale)  # type: ignore[arg-type]
    assert [parse(event.line()) for event in events] == events


def test_files_of_several_processes_are_one_history() -> None:
    """A reads what B sent: each file alone would be nonsense, both together are a clean history."""
    story = Story()
    tales_of_messages.good_everything_arrives(story)
    parts: dict[str, list[Event]] = {"p": [], "c": [], "final": []}
    for event in story.events:
        parts[event.proc].append(event)
    for part in parts.values():
        numbers = {event.n: number for number, event in enumerate(part)}
        for event in part:
            event.n = numbers[event.n]
            event.op = None if event.op is None else numbers[event.op]
    assert not judge(merge(parts.values())).violations


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (Event(3, 3, "p", "invoke", "send", uid="x"), "without an `open` event"),
        (Event(3, 3, "p", "ok", "send", op=1), "did not begin"),
        (Event(0, 3, "p", "ok", "open", details={}), "sort or merge"),
    ],
)
def test_history_that_contradicts_itself_is_refused(event: Event, complaint: str) -> None:
    first = Event(2, 2, "q", "ok", "open", details={})
    with pytest.raises(BadHistory, match=complaint):
        gather([first, event])


def test_a_uid_is_sent_once() -> None:
    story = Story()
    story.producer("p")
    story.send("p", "x@0")
    story.send("p", "x@1")
    with pytest.raises(BadHistory, match="must be new"):
        gather(story.events)


def test_file_that_is_no_history_gets_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    assert main([str(path)]) == 2
    assert "no verdict: not an event: 'dear diary'" in capsys.readouterr().err
    assert main([str(tmp_path / "absent")]) == 2
    assert main([]) == 2


@pytest.mark.parametrize(
    ("f", "err", "tried_once", "expected"),
    [
        ("send", "MSG_SIZE_TOO_LARGE", False, FAIL),
        ("send", "NOT_ENOUGH_REPLICAS", True, FAIL),
        ("send", "NOT_ENOUGH_REPLICAS", False, INFO),  # an earlier attempt may have been stored
        ("send", "NOT_LEADER_OR_FOLLOWER", True, INFO),  # it may have been one when it wrote
        ("send", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", True, INFO),
        ("send", "REQUEST_TIMED_OUT", True, INFO),
        ("send", "_MSG_TIMED_OUT", False, INFO),
        ("send", "_TRANSPORT", True, INFO),
        ("send", "AN_ERROR_OF_NEXT_YEAR", True, INFO),
        ("commit", "ILLEGAL_GENERATION", True, FAIL),
        ("commit", "ILLEGAL_GENERATION", False, INFO),
        ("send_offsets", "STALE_MEMBER_EPOCH", True, FAIL),
        ("end", "PRODUCER_FENCED", True, FAIL),
        ("end", "PRODUCER_FENCED", False, INFO),
        ("poll", "_TIMED_OUT", True, INFO),
    ],
)
def test_error_is_a_failure_only_if_it_proves_it(f: str, err: str, tried_once: bool, expected: str) -> None:
    assert outcome(f, err, tried_once) == expected
