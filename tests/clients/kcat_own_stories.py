"""kcat's stories of what only headrace has: delayed and scheduled records, and views, by headers and topics alone."""

import re
import signal
import subprocess

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.clients.kcat_stories import all_of, kcat
from tests.clients.own_features import (
    CANCEL,
    CANCEL_KEY,
    CLOCKS_MS,
    CRON,
    CRON_ZONE,
    DELAY,
    DELIVER_AT,
    HOUR,
    LEAP_DAYS,
    MOVE,
    REFUSED_DELAYS,
    SCHEDULED_FOR,
    SCHEDULED_ID,
    TAG,
    TAGGED,
    VIEWS,
    now_ms,
)
from tests.clients.patience import until
from tests.clients.shell import Script, Stage, expect, expect_in

script = Script()
INVALID_RECORD = "Broker failed to validate record"
LATER = {DELAY: HOUR.decode()}
HASTY = ("-X", "isolation.level=read_uncommitted")


def headers(wanted: dict[str, str]) -> list[str]:
    return [word for name, value in wanted.items() for word in ("-H", f"{name}={value}")]


def sent(stage: Stage, topic: str, value: str, wanted: dict[str, str], *arguments: str) -> int:
    """The offset that kcat is told, which is the id of a delayed record; it says so in its verbose form."""
    command = ["kcat", "-b", stage.bootstrap, "-vvv", "-P", "-t", topic, "-p", "0", *headers(wanted), *arguments]
    said = stage.run("sh", "-c", 'exec "$0" "$@" 2>&1', *command, stdin=f"{value}\n")
    found = re.search(r"delivered to partition \d+ \(offset (\d+)\)", said)
    expect(True, found is not None)
    assert found is not None
    return int(found[1])


def refused(stage: Stage, topic: str, wanted: dict[str, str]) -> None:
    command = ["kcat", "-b", stage.bootstrap, "-P", "-t", topic, "-p", "0", *headers(wanted)]
    expect_in(INVALID_RECORD, stage.run(*command, stdin="refused\n", fails=True))


def committed(stage: Stage, group: str, topic: str) -> int:
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    answer = stage.admin.list_consumer_group_offsets([asked])[group].result(30)
    offset: int = answer.topic_partitions[0].offset
    return offset


def end_of(stage: Stage, topic: str) -> int:
    said = kcat(stage, "-Q", "-t", f"{topic}:0:-1", *HASTY)
    return int(said.split()[-1])


def of_group(stage: Stage, group: str, topic: str, count: int, form: str) -> list[str]:
    """What a member prints of the next messages."""
    settings = ("-X", "auto.offset.reset=earliest", "-c", str(count), "-f", form + "\n")
    return kcat(stage, "-G", group, *settings, topic).splitlines()


@script.story("delayed")
def delayed_records_come_when_they_are_due(stage: Stage) -> None:
    topic, group = stage.topic(headrace_delay_enable="true"), stage.unique("group")
    idempotent, began = ("-X", "enable.idempotence=true", "-z", "gzip"), now_ms()
    sent(stage, topic, "far", LATER, *idempotent)
    soon = sent(stage, topic, "soon", {DELAY: "700", "colour": "red"}, "-k", "key", *idempotent)
    ended, moment = now_ms(), now_ms() + 900
    dated = sent(stage, topic, "dated", {DELIVER_AT: str(moment)}, *idempotent)
    sent(stage, topic, "plain", {"colour": "blue"})
    lines = of_group(stage, group, topic, 3, "%s|%k|%T|%h")
    told = {line.split("|")[0]: line.split("|")[1:] for line in lines}
    expect({"plain", "soon", "dated"}, set(told))
    expect("colour=blue", told["plain"][2])
    for value, identifier, earliest, latest in (
        ("soon", soon, began + 700, ended + 700),
        ("dated", dated, moment, moment),
    ):
        found = dict(pair.split("=") for pair in told[value][2].split(","))
        due = int(found.pop(SCHEDULED_FOR))
        expect(True, earliest - CLOCKS_MS <= due <= latest + CLOCKS_MS)
        # The timestamp is that of the release.
        expect(True, due <= int(told[value][1]) <= now_ms() + CLOCKS_MS)
        expect({SCHEDULED_ID: str(identifier)} | ({"colour": "red"} if value == "soon" else {}), found)
    expect("key", told["soon"][0])
    expect(end_of(stage, topic), committed(stage, group, topic))
    expect([line.split("|")[0] for line in lines], all_of(stage, topic).splitlines())


@script.story("delayed-transactions")
def delayed_records_of_a_transaction_come_after_its_commit(stage: Stage) -> None:
    topic, transactional = stage.topic(partitions=2, headrace_delay_enable="true"), stage.unique("id")
    arguments = ["-P", "-t", topic, "-p", "0", "-X", f"transactional.id={transactional}", "-H", f"{DELAY}=300"]
    command = ["kcat", "-b", stage.bootstrap, "-q", *arguments]
    producer = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert producer.stdin is not None
        # It sends when its buffer of input is full, or at the end of it.
        producer.stdin.write(b"lost\n" * 10_000)
        producer.stdin.flush()
        until("the open transaction has a record", lambda: end_of(stage, topic), pause_s=0.2)
        # When a later one of the other partition has come, these were due too.
        kcat(stage, "-P", "-t", topic, "-p", "1", "-H", f"{DELAY}=400", stdin="witness\n")
        expect("witness\n", kcat(stage, "-C", "-t", topic, "-p", "1", "-o", "beginning", "-c", "1", *HASTY))
        expect("", all_of(stage, topic, "-p", "0", *HASTY))
        # Ctrl-C tells this client to abort, which it does when it has read on.
        producer.send_signal(signal.SIGINT)
        producer.communicate(b"lost\n" * 10_000, timeout=20)
    finally:
        producer.kill()
        producer.wait(20)
    kcat(stage, *arguments, stdin="kept\n")
    expect("kept\n", kcat(stage, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "1"))
    expect("kept\n", all_of(stage, topic, "-p", "0"))
    expect("kept\n", all_of(stage, topic, "-p", "0", *HASTY))


@script.story("cancelled")
def what_is_cancelled_never_comes(stage: Stage) -> None:
    topic = stage.topic(headrace_delay_enable="true")
    one = sent(stage, topic, "one", LATER)
    keyed = [sent(stage, topic, "keyed", LATER, "-k", "k") for _ in range(2)]
    other = sent(stage, topic, "other", LATER, "-k", "another")
    sent(stage, topic, "cancel", {CANCEL: str(one)})
    sent(stage, topic, "cancel", {CANCEL_KEY: "k"})
    end = end_of(stage, topic)
    for gone in (one, *keyed):
        refused(stage, topic, {CANCEL: str(gone)})
        refused(stage, topic, {MOVE: str(gone), DELAY: "0"})
    refused(stage, topic, {CANCEL_KEY: "k"})
    for name, value in REFUSED_DELAYS:
        refused(stage, topic, {name: value.decode()})
    expect(end, end_of(stage, topic))
    sent(stage, topic, "move", {MOVE: str(other), DELAY: "0"})
    expect(["other"], of_group(stage, stage.unique("group"), topic, 1, "%s"))
    expect("other\n", all_of(stage, topic))


@script.story("scheduled")
def a_schedule_that_is_moved_to_now_comes_and_stays(stage: Stage) -> None:
    topic = stage.topic(headrace_delay_enable="true")
    cron, zone = (wish.decode() for wish in LEAP_DAYS)
    report = sent(stage, topic, "report", {CRON: cron, CRON_ZONE: zone})
    for turn in range(2):
        sent(stage, topic, "move", {MOVE: str(report), DELAY: "0"})
        group = of_group(stage, stage.unique("group"), topic, turn + 1, "%s|%h")
        expect(["report"] * (turn + 1), [line.split("|")[0] for line in group])
        expect_in(f"{SCHEDULED_ID}={report}", group[-1])
    once = sent(stage, topic, "once", LATER)
    sent(stage, topic, "move", {MOVE: str(once), DELIVER_AT: "2001-02-03T04:05:06Z"})
    expect_in(f"{SCHEDULED_ID}={once}", of_group(stage, stage.unique("group"), topic, 3, "%h")[-1])
    refused(stage, topic, {CANCEL: str(once)})
    sent(stage, topic, "cancel", {CANCEL: str(report)})
    refused(stage, topic, {CANCEL: str(report)})
    expect("report\nreport\nonce\n", all_of(stage, topic))


@script.story("scheduled")
def what_is_pending_is_read_to_its_end_at_its_ids(stage: Stage) -> None:
    topic = stage.topic(headrace_delay_enable="true")
    view = stage.topic(headrace_view_of=topic, headrace_view_pending="true")
    expect("", all_of(stage, view))
    ids = [sent(stage, topic, f"later {at}", LATER | {"colour": "red"}, "-k", f"k{at}") for at in range(3)]
    sent(stage, topic, "plain", {})
    lines = [f"{ids[at]}|later {at}|k{at}|{DELAY}={HOUR.decode()},colour=red" for at in range(3)]
    for told, line in zip(all_of(stage, view, "-f", "%o|%s|%k|%h\n").splitlines(), lines, strict=True):
        found, _, due = told.rpartition(f",{SCHEDULED_FOR}=")
        expect(line, found)
        expect(True, abs(int(due) - now_ms() - int(HOUR)) < 60_000)
    sent(stage, topic, "cancel", {CANCEL: str(ids[1])})
    expect(["later 0", "later 2"], of_group(stage, stage.unique("group"), view, 2, "%s"))
    expect(end_of(stage, topic), end_of(stage, view))
    expect("later 0\nlater 2\n", all_of(stage, view))


def view_of(stage: Stage, base: str, tags: str, match: str) -> str:
    settings = {"headrace_view_of": base, "headrace_view_tags": tags, "headrace_view_match": match}
    return stage.topic(**settings)


@script.story("views")
def a_view_is_read_at_the_offsets_of_its_base(stage: Stage) -> None:
    base = stage.topic(headrace_tags_enable="true")
    for value, tags in TAGGED[:8]:
        words = [word for tag in tags for word in ("-H", f"{TAG}={tag.decode()}")]
        kcat(stage, "-P", "-t", base, *words, stdin=f"{value.decode()}\n")
    for tags, match, numbers in VIEWS:
        view, group, wanted = view_of(stage, base, tags, match), stage.unique("group"), [at for at in numbers if at < 8]
        lines = [f"{view} {number} {number}" for number in wanted]
        expect("\n".join(lines) + "\n", all_of(stage, view, "-f", "%t %o %s\n"))
        expect(lines, of_group(stage, group, view, len(lines), "%t %o %s"))
        # It may have ended before it heard that nothing else is for it.
        expect(True, wanted[-1] + 1 <= committed(stage, group, view) <= 8)
        expect(8, end_of(stage, view))
        said = stage.run("kcat", "-b", stage.bootstrap, "-P", "-t", view, "-p", "0", stdin="refused\n", fails=True)
        expect_in("Invalid topic", said)


@script.story("view-transactions")
def a_view_shows_what_is_committed(stage: Stage) -> None:
    base, transactional = stage.topic(headrace_tags_enable="true"), stage.unique("id")
    view = view_of(stage, base, "red", "any")
    arguments = ["-P", "-t", base, "-X", f"transactional.id={transactional}", "-H", f"{TAG}=red"]
    producer = subprocess.Popen(["kcat", "-b", stage.bootstrap, "-q", *arguments], stdin=subprocess.PIPE)
    try:
        assert producer.stdin is not None
        producer.stdin.write(b"lost\n" * 10_000)
        producer.stdin.flush()
        until("the open transaction is seen", lambda: "lost" in all_of(stage, view, *HASTY), pause_s=0.2)
        expect("", all_of(stage, view))
        producer.send_signal(signal.SIGINT)
        producer.communicate(b"lost\n" * 10_000, timeout=20)
    finally:
        producer.kill()
        producer.wait(20)
    kcat(stage, *arguments, stdin="kept\n")
    kcat(stage, "-P", "-t", base, "-H", f"{TAG}=green", stdin="green\n")
    expect("kept\n", all_of(stage, view))
