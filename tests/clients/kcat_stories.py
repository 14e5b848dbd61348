"""kcat's stories: the C client of years ago (librdkafka 2.0 on Debian 12), driven from the shell."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from tests.clients.patience import until
from tests.clients.shell import Script, Stage, expect, expect_in

script = Script()
NUMBERS = "".join(f"{number}\n" for number in range(10))


def kcat(stage: Stage, *arguments: str, stdin: str | bytes = "", fails: bool = False) -> str:
    return stage.run("kcat", "-b", stage.bootstrap, "-q", *arguments, stdin=stdin, fails=fails)


def all_of(stage: Stage, topic: str, *arguments: str) -> str:
    return kcat(stage, "-C", "-t", topic, "-o", "beginning", "-e", *arguments)


@script.story("round-trip")
def keys_and_values_come_back(stage: Stage) -> None:
    topic = stage.topic()
    kcat(stage, "-P", "-t", topic, "-K", ":", "-Z", stdin="key:value\n:no key\nno value:\nschlüssel:värde — 値 🌊\n")
    expect(
        "key|value\nNULL|no key\nno value|NULL\nschlüssel|värde — 値 🌊\n", all_of(stage, topic, "-Z", "-f", "%k|%s\n")
    )


@script.story("compression")
def compressed_batches_come_back(stage: Stage) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = stage.topic()
        kcat(stage, "-P", "-t", topic, "-X", f"compression.codec={codec}", stdin=NUMBERS * 20)
        expect(NUMBERS * 20, all_of(stage, topic))


@script.story("headers")
def headers_come_back(stage: Stage) -> None:
    topic = stage.topic()
    kcat(stage, "-P", "-t", topic, "-H", "a=1", "-H", "b=zwei", "-H", "a=3", stdin="v\n")
    expect("a=1,b=zwei,a=3\n", all_of(stage, topic, "-f", "%h\n"))


@script.story("timestamps")
def messages_carry_the_producers_clock(stage: Stage) -> None:
    topic = stage.topic()
    before_ms = int(time.time() * 1000)
    kcat(stage, "-P", "-t", topic, stdin="v\n")
    stamp_ms = int(all_of(stage, topic, "-f", "%T"))
    expect(True, before_ms <= stamp_ms <= int(time.time() * 1000))


@script.story("log-append-time")
def the_broker_stamps_where_the_topic_says_so(stage: Stage) -> None:
    topic = stage.topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    stage.fill(topic, ["v"], start_ms=before_ms - 3_600_000)
    expect(True, before_ms <= int(all_of(stage, topic, "-f", "%T")))


@script.story("large-message")
def a_file_of_900_kb_is_one_message(stage: Stage) -> None:
    topic = stage.topic()
    text = "0123456789abcdef" * 56_250
    kcat(stage, "-P", "-t", topic, str(stage.file("large", text)))
    expect(text, all_of(stage, topic, "-D", ""))


@script.story("oversize")
def a_message_over_the_topics_limit_is_refused(stage: Stage) -> None:
    topic = stage.topic(max_message_bytes="1000")
    said = stage.run("kcat", "-b", stage.bootstrap, "-P", "-t", topic, stdin="x" * 5000 + "\n", fails=True)
    expect_in("Message size too large", said)


@script.story("acks")
def messages_arrive_with_every_kind_of_acks(stage: Stage) -> None:
    for acks in ("0", "1", "all"):
        topic = stage.topic()
        kcat(stage, "-P", "-t", topic, "-X", f"acks={acks}", stdin=NUMBERS)
        until("the messages are there", lambda topic=topic: all_of(stage, topic) == NUMBERS)


@script.story("idempotence")
def the_idempotent_producer_keeps_order(stage: Stage) -> None:
    topic = stage.topic()
    numbers = "".join(f"{number}\n" for number in range(2000))
    kcat(stage, "-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "batch.num.messages=20", stdin=numbers)
    expect(numbers, all_of(stage, topic))


@script.story("key-order", "partitioning")
def a_key_stays_in_one_partition_and_in_order(stage: Stage) -> None:
    topic = stage.topic(partitions=4)
    lines = "".join(f"key-{number % 10}:{number}\n" for number in range(400))
    kcat(stage, "-P", "-t", topic, "-K", ":", stdin=lines)
    homes: dict[str, set[str]] = {}
    values: dict[str, list[int]] = {}
    for line in all_of(stage, topic, "-f", "%k %p %s\n").splitlines():
        key, partition, value = line.split()
        homes.setdefault(key, set()).add(partition)
        values.setdefault(key, []).append(int(value))
    expect({1}, {len(home) for home in homes.values()})
    expect({f"key-{key}": list(range(key, 400, 10)) for key in range(10)}, values)
    kcat(stage, "-P", "-t", topic, "-p", "3", stdin="to three\n")
    expect_in("3 to three", all_of(stage, topic, "-f", "%p %s\n"))


@script.story("many-messages")
def fifty_thousand_lines_come_back(stage: Stage) -> None:
    topic = stage.topic()
    lines = "".join(f"{number}\n" for number in range(50_000))
    kcat(stage, "-P", "-t", topic, stdin=lines)
    expect(lines, all_of(stage, topic))


@script.story("seek")
def reading_starts_where_it_is_asked_to(stage: Stage) -> None:
    topic = stage.topic()
    kcat(stage, "-P", "-t", topic, stdin=NUMBERS)
    for start, wanted in (("beginning", "0\n1\n"), ("7", "7\n8\n"), ("-3", "7\n8\n")):
        expect(wanted, kcat(stage, "-C", "-t", topic, "-p", "0", "-o", start, "-c", "2", "-e"))
    expect("", kcat(stage, "-C", "-t", topic, "-p", "0", "-o", "end", "-e"))


@script.story("dropped-records")
def offsets_without_records_are_read_past(stage: Stage) -> None:
    deduplicated = stage.topic(headrace_dedup_window_ms="600000")
    compacted = stage.topic(cleanup_policy="compact", segment_bytes="100", min_cleanable_dirty_ratio="0")
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 0})
    for number in range(40):
        producer.produce(deduplicated, b"same", headers={"headrace.id": b"same"})
        producer.produce(compacted, b"%d" % number, b"k")
        expect(0, producer.flush(30))
    expect("0 same\n", all_of(stage, deduplicated, "-f", "%o %s\n"))
    until("it is compacted", lambda: all_of(stage, compacted, "-f", "%o %s\n") == "38 38\n39 39\n")


@script.story("seek-by-time")
def reading_starts_at_a_time(stage: Stage) -> None:
    topic = stage.topic()
    start_ms = int(time.time() * 1000) - 3_600_000
    stage.fill(topic, NUMBERS.split(), start_ms=start_ms, step_ms=1000)
    expect_in(f"{topic} [0] offset 4", kcat(stage, "-Q", "-t", f"{topic}:0:{start_ms + 3001}"))
    expect("6\n", kcat(stage, "-C", "-t", topic, "-p", "0", "-o", f"s@{start_ms + 5500}", "-c", "1"))


@script.story("watermarks")
def first_and_last_offset_are_told(stage: Stage) -> None:
    topic = stage.topic()
    kcat(stage, "-P", "-t", topic, stdin=NUMBERS)
    expect_in("offset 0", kcat(stage, "-Q", "-t", f"{topic}:0:-2"))
    expect_in("offset 10", kcat(stage, "-Q", "-t", f"{topic}:0:-1"))


@contextmanager
def open_transaction(stage: Stage, topic: str, transactional_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """A kcat that has sent some of `lost` in a transaction, and has not ended it."""
    command = ["kcat", "-b", stage.bootstrap, "-q", "-P", "-t", topic, "-X", f"transactional.id={transactional_id}"]
    producer = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert producer.stdin is not None
        # It sends when its buffer of input is full, or at the end of it.
        producer.stdin.write(b"lost\n" * 10_000)
        producer.stdin.flush()
        hasty = ("-X", "isolation.level=read_uncommitted")
        until("the open transaction has a record", lambda: "lost" in all_of(stage, topic, *hasty), pause_s=0.2)
        yield producer
    finally:
        producer.kill()
        producer.communicate(timeout=20)


@script.story("transactions")
def what_is_sent_in_one_transaction_is_read_as_a_whole_or_never(stage: Stage) -> None:
    topic, transactional_id = stage.topic(), stage.unique("id")
    with open_transaction(stage, topic, transactional_id) as producer:
        expect("", all_of(stage, topic))
        # Ctrl-C tells this client to abort, which it does when it has read on.
        producer.send_signal(signal.SIGINT)
        producer.communicate(b"lost\n" * 10_000, timeout=20)
    kcat(stage, "-P", "-t", topic, "-X", f"transactional.id={transactional_id}", stdin=NUMBERS)
    expect(NUMBERS, all_of(stage, topic))


@script.story("fencing")
def the_second_producer_of_an_id_ends_the_first(stage: Stage) -> None:
    topic, transactional_id = stage.topic(), stage.unique("id")
    with open_transaction(stage, topic, transactional_id) as first:
        kcat(stage, "-P", "-t", topic, "-X", f"transactional.id={transactional_id}", stdin="kept\n")
        _, said = first.communicate(b"", timeout=20)
        expect(True, first.returncode != 0)
        expect_in("fenced", said.decode(errors="replace").lower())
    expect("kept\n", all_of(stage, topic))


def group_member(stage: Stage, group: str, topic: str, number: int, *settings: str) -> subprocess.Popen[bytes]:
    """A kcat that stays in a group, with its rebalances in a file."""
    command = ["kcat", "-b", stage.bootstrap, "-G", group, "-X", "heartbeat.interval.ms=200", "-u"]
    command += ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000"]
    command += ["-X", "topic.metadata.refresh.interval.ms=500", *settings, topic]
    with (stage.folder / f"{group}.{number}").open("wb") as told:
        return subprocess.Popen(command, stdout=told, stderr=told, stdin=subprocess.DEVNULL)


def share_of(stage: Stage, group: str, number: int) -> set[str]:
    """The partitions in the last assignment that this kcat printed."""
    printed = (stage.folder / f"{group}.{number}").read_text(errors="replace")
    assigned = re.findall(r"assigned: (.*)", printed)
    return set(assigned[-1].split(", ")) if assigned else set()


def assignor_shares(stage: Stage, *settings: str) -> None:
    topic, group = stage.topic(partitions=4), stage.unique("group")
    members = [group_member(stage, group, topic, 0, *settings)]
    try:
        until("one member has all", lambda: len(share_of(stage, group, 0)) == 4)
        members.append(group_member(stage, group, topic, 1, *settings))
        until(
            "two members have two partitions each",
            lambda: (
                [len(share_of(stage, group, number)) for number in range(2)] == [2, 2]
                and not share_of(stage, group, 0) & share_of(stage, group, 1)
            ),
        )
        members.pop().terminate()
        until("the one that stays has all again", lambda: len(share_of(stage, group, 0)) == 4)
    finally:
        for member in members:
            member.terminate()
            member.wait(20)


@script.story("group-split", "group-leave", "range")
def range_members_share_and_take_over(stage: Stage) -> None:
    assignor_shares(stage, "-X", "partition.assignment.strategy=range")


@script.story("roundrobin")
def round_robin_members_share_and_take_over(stage: Stage) -> None:
    assignor_shares(stage, "-X", "partition.assignment.strategy=roundrobin")


@script.story("static-member")
def a_static_member_restarts_without_a_rebalance(stage: Stage) -> None:
    topic, group = stage.topic(partitions=4), stage.unique("group")
    stays = group_member(stage, group, topic, 0, "-X", "group.instance.id=stays", "-X", "session.timeout.ms=20000")
    restarts = group_member(
        stage, group, topic, 1, "-X", "group.instance.id=restarts", "-X", "session.timeout.ms=20000"
    )
    try:
        until("two members share", lambda: [len(share_of(stage, group, number)) for number in range(2)] == [2, 2])
        before = (stage.folder / f"{group}.0").read_text()
        restarts.terminate()
        restarts.wait(20)
        restarts = group_member(stage, group, topic, 2, "-X", "group.instance.id=restarts")
        until("the member is back", lambda: share_of(stage, group, 2) == share_of(stage, group, 1))
        expect(before, (stage.folder / f"{group}.0").read_text())
    finally:
        for member in (stays, restarts):
            member.terminate()
            member.wait(20)


@script.story("partition-growth")
def a_group_takes_over_added_partitions(stage: Stage) -> None:
    topic, group = stage.topic(), stage.unique("group")
    member = group_member(stage, group, topic, 0)
    try:
        until("the member has the one partition", lambda: len(share_of(stage, group, 0)) == 1)
        stage.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        until("the member has all three", lambda: len(share_of(stage, group, 0)) == 3)
    finally:
        member.terminate()
        member.wait(20)


@script.story("commit")
def a_group_resumes_where_it_was(stage: Stage) -> None:
    topic, group = stage.topic(), stage.unique("group")
    kcat(stage, "-P", "-t", topic, stdin=NUMBERS)
    settings = ("-X", "auto.offset.reset=earliest", "-c", "4")
    expect("0\n1\n2\n3\n", kcat(stage, "-G", group, *settings, topic))
    expect("4\n5\n6\n7\n", kcat(stage, "-G", group, *settings, topic))


@script.story("regex")
def a_pattern_finds_a_topic_made_later(stage: Stage) -> None:
    prefix, group = stage.unique("family"), stage.unique("group")
    stage.topic(name=f"{prefix}-one")
    member = group_member(stage, group, f"^{prefix}-.*", 0)
    try:
        until("the first topic is found", lambda: len(share_of(stage, group, 0)) == 1)
        stage.topic(name=f"{prefix}-two")
        until("the second topic is found", lambda: len(share_of(stage, group, 0)) == 2)
    finally:
        member.terminate()
        member.wait(20)


@script.story("cluster")
def metadata_lists_brokers_topics_and_partitions(stage: Stage) -> None:
    topic = stage.topic(partitions=3)
    metadata = json.loads(kcat(stage, "-L", "-J"))
    expect([stage.bootstrap], [broker["name"] for broker in metadata["brokers"]])
    expect(metadata["brokers"][0]["id"], metadata["controllerid"])
    listed = {entry["topic"]: entry["partitions"] for entry in metadata["topics"]}
    expect([0, 1, 2], [partition["partition"] for partition in listed[topic]])
    expect_in(f'topic "{topic}" with 3 partitions', kcat(stage, "-L", "-t", topic))


@script.story("unknown-topic")
def a_topic_that_does_not_exist_is_said_not_to_exist(stage: Stage) -> None:
    topic = stage.unique("never-created")
    said = kcat(stage, "-C", "-t", topic, "-e", "-X", "allow.auto.create.topics=false", fails=True)
    expect_in("Unknown topic or partition", said)
