"""The stories of Kafka's own command-line tools, as its scripts start them: one JVM per command."""

import json
import time

from confluent_kafka import Producer

from tests.clients.java_suite import CLASSPATH
from tests.clients.patience import until
from tests.clients.shell import Script, Stage, expect, expect_in

script = Script()
TOOLS = "org.apache.kafka.tools."
NUMBERS = "".join(f"{number}\n" for number in range(10))


def java(name: str, *arguments: str) -> list[str]:
    """The command that starts one of Kafka's tools; `name` is the class below org.apache.kafka.tools, or a full one."""
    main = name if name.startswith("kafka.") else TOOLS + name
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", quiet, "-cp", CLASSPATH, main, *arguments]


def tool(stage: Stage, name: str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
    command = java(name, "--bootstrap-server", stage.bootstrap, *arguments)
    return stage.run(*command, stdin=stdin, fails=fails)


def consume(stage: Stage, topic: str, count: int, *arguments: str) -> str:
    limits = ("--max-messages", str(count), "--timeout-ms", "20000")
    return tool(stage, "consumer.ConsoleConsumer", "--topic", topic, *limits, *arguments)


@script.story("round-trip", "compression", "headers")
def console_producer_and_consumer_agree(stage: Stage) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = stage.topic()
        reading = ("parse.key=true", "key.separator==", "parse.headers=true", "headers.delimiter=|")
        properties = [part for setting in reading for part in ("--reader-property", setting)]
        lines = "a:1,b:2|schlüssel=värde 値\nc:3|key=value\n"
        tool(stage, "ConsoleProducer", "--topic", topic, "--compression-codec", codec, *properties, stdin=lines)
        shown = [
            part for setting in ("print.key", "print.headers") for part in ("--formatter-property", f"{setting}=true")
        ]
        wanted = "a:1,b:2\tschlüssel\tvärde 値\nc:3\tkey\tvalue\n"
        expect(wanted, consume(stage, topic, 2, "--from-beginning", *shown))


@script.story("timestamps", "log-append-time")
def console_consumer_shows_timestamps_and_partitions(stage: Stage) -> None:
    start_ms = int(time.time() * 1000) - 3_600_000
    shown = ("--formatter-property", "print.timestamp=true", "--formatter-property", "print.partition=true")
    topic = stage.topic(partitions=2)
    stage.fill(topic, ["v"], partition=1, start_ms=start_ms)
    expect(f"CreateTime:{start_ms}\tPartition:1\tv\n", consume(stage, topic, 1, "--from-beginning", *shown))
    stamped = stage.topic(message_timestamp_type="LogAppendTime")
    stage.fill(stamped, ["v"], start_ms=start_ms)
    expect_in("LogAppendTime:", consume(stage, stamped, 1, "--from-beginning", *shown))


@script.story("acks")
def console_producer_with_every_kind_of_acks(stage: Stage) -> None:
    for acks in ("0", "1", "all"):
        topic = stage.topic()
        tool(stage, "ConsoleProducer", "--topic", topic, "--request-required-acks", acks, stdin=NUMBERS)
        expect(NUMBERS, consume(stage, topic, 10, "--from-beginning"))


@script.story("idempotence")
def verifiable_producer_is_acknowledged_in_full(stage: Stage) -> None:
    topic = stage.topic()
    printed = tool(stage, "VerifiableProducer", "--topic", topic, "--max-messages", "500", "--throughput", "-1")
    finished = next(json.loads(line) for line in printed.splitlines() if '"tool_data"' in line)
    expect((500, 500), (finished["sent"], finished["acked"]))


@script.story("many-messages", "large-message")
def the_performance_tools_produce_and_consume(stage: Stage) -> None:
    for count, size in ((50_000, 100), (20, 900_000)):
        topic = stage.topic()
        limits = ("--num-records", str(count), "--record-size", str(size), "--throughput", "-1")
        said = tool(stage, "ProducerPerformance", "--topic", topic, *limits)
        expect_in(f"{count} records sent", said)
        said = tool(stage, "ConsumerPerformance", "--topic", topic, "--num-records", str(count), "--timeout", "20000")
        expect(True, float(said.strip().splitlines()[-1].split(",")[4]) >= count)


@script.story("transactions")
def the_performance_producer_writes_in_transactions(stage: Stage) -> None:
    topic, transactional_id = stage.topic(), stage.unique("id")
    sizes = ("--num-records", "2000", "--record-size", "10", "--throughput", "10000")
    limits = ("--transactional-id", transactional_id, "--transaction-duration-ms", "50")
    expect_in("2000 records sent", tool(stage, "ProducerPerformance", "--topic", topic, *sizes, *limits))
    read = consume(stage, topic, 2000, "--from-beginning", "--isolation-level", "read_committed")
    expect(2000, len(read.splitlines()))


@script.story("transactional-offsets")
def the_message_copier_copies_each_message_once(stage: Stage) -> None:
    source, target = stage.topic(), stage.topic()
    stage.fill(source, [str(number) for number in range(100)])
    places = ("--input-topic", source, "--input-partition", "0", "--output-topic", target)
    group = ("--consumer-group", stage.unique("worker"), "--transactional-id", stage.unique("id"))
    command = java("TransactionalMessageCopier", "--broker-list", stage.bootstrap, *places, *group)
    # Half of the transactions are aborted, and their messages are copied again.
    stage.run(*command, "--max-messages", "100", "--transaction-size", "10", "--enable-random-aborts")
    copied = consume(stage, target, 100, "--from-beginning", "--isolation-level", "read_committed")
    expect([str(number) for number in range(100)], copied.split())


@script.story("transactions-admin")
def a_hanging_transaction_is_found_and_ended(stage: Stage) -> None:
    topic, transactional_id = stage.topic(), stage.unique("id")

    def transactions(*arguments: str) -> list[list[str]]:
        """The rows of what the tool printed, without the heading."""
        return [line.split() for line in tool(stage, "TransactionsCommand", *arguments).splitlines()[1:]]

    def states() -> dict[str, str]:
        return {row[0]: row[3] for row in transactions("list")}

    producer = Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"lost", partition=0)
    expect(0, producer.flush(30))
    expect("Ongoing", states()[transactional_id])
    [described] = transactions("describe", "--transactional-id", transactional_id)
    expect_in(f"{topic}-0", described[-1])
    place = ("--topic", topic, "--partition", "0")
    [state] = transactions("describe-producers", *place)
    expect((described[2], "0"), (state[0], state[-1]))
    expect([], transactions("find-hanging", *place))
    transactions("abort", *place, "--start-offset", "0")
    stage.fill(topic, ["after"])
    expect("after\n", consume(stage, topic, 1, "--from-beginning", "--isolation-level", "read_committed"))
    transactions("forceTerminateTransaction", "--transactionalId", transactional_id)
    until("the transaction has ended", lambda: states()[transactional_id] != "Ongoing", pause_s=0.5)


@script.story("seek")
def console_consumer_starts_at_an_offset(stage: Stage) -> None:
    topic = stage.topic()
    stage.fill(topic, NUMBERS.split())
    expect("7\n8\n", consume(stage, topic, 2, "--partition", "0", "--offset", "7"))


@script.story("watermarks", "list-offsets", "seek-by-time")
def offsets_are_listed(stage: Stage) -> None:
    topic = stage.topic()
    start_ms = int(time.time() * 1000) - 3_600_000
    stage.fill(topic, NUMBERS.split(), start_ms=start_ms, step_ms=1000)
    cases = {"earliest": 0, "latest": 10, "max-timestamp": 9, str(start_ms + 3001): 4}
    for when, offset in cases.items():
        expect(f"{topic}:0:{offset}\n", tool(stage, "GetOffsetShell", "--topic", topic, "--time", when))


@script.story("topics", "partitions")
def topics_are_made_shown_grown_and_deleted(stage: Stage) -> None:
    topic = stage.unique("topic")
    tool(stage, "TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=5000")
    expect_in(topic, tool(stage, "TopicCommand", "--list"))
    shown = tool(stage, "TopicCommand", "--describe", "--topic", topic)
    expect_in("PartitionCount: 2", shown)
    expect_in("retention.ms=5000", shown)
    tool(stage, "TopicCommand", "--alter", "--topic", topic, "--partitions", "4")
    expect_in("PartitionCount: 4", tool(stage, "TopicCommand", "--describe", "--topic", topic))
    tool(stage, "TopicCommand", "--delete", "--topic", topic)
    expect(False, topic in tool(stage, "TopicCommand", "--list").split())


@script.story("topic-errors", "unknown-topic")
def wrong_topics_are_refused_by_name(stage: Stage) -> None:
    topic = stage.topic()

    def refused(*arguments: str) -> str:
        return tool(stage, "TopicCommand", *arguments, fails=True)

    expect_in("already exists", refused("--create", "--topic", topic))
    expect_in("InvalidTopic", refused("--create", "--topic", "bad name!"))
    expect_in("no.such.setting", refused("--create", "--topic", "refused", "--config", "no.such.setting=1"))
    expect_in("InvalidReplicationFactor", refused("--create", "--topic", "refused", "--replication-factor", "9"))
    expect_in("does not exist", refused("--describe", "--topic", stage.unique("never")))


@script.story("configs", "incremental-configs")
def settings_are_shown_set_and_deleted(stage: Stage) -> None:
    topic = stage.topic()
    place = ("--entity-type", "topics", "--entity-name", topic)
    tool(stage, "kafka.admin.ConfigCommand", *place, "--alter", "--add-config", "retention.ms=5000,segment.ms=60000")
    shown = tool(stage, "kafka.admin.ConfigCommand", *place, "--describe")
    expect_in("retention.ms=5000", shown)
    expect_in("segment.ms=60000", shown)
    tool(stage, "kafka.admin.ConfigCommand", *place, "--alter", "--delete-config", "segment.ms")
    expect(False, "segment.ms" in tool(stage, "kafka.admin.ConfigCommand", *place, "--describe"))
    expect_in("retention.ms=5000", tool(stage, "kafka.admin.ConfigCommand", *place, "--describe", "--all"))


@script.story("cluster")
def cluster_log_folders_and_versions_are_shown(stage: Stage) -> None:
    topic = stage.topic()
    stage.fill(topic, NUMBERS.split())
    folders = tool(stage, "LogDirsCommand", "--describe", "--topic-list", topic)
    described = json.loads(next(line for line in folders.splitlines() if line.startswith("{")))
    held = described["brokers"][0]["logDirs"][0]["partitions"]
    expect([f"{topic}-0"], [entry["partition"] for entry in held])
    expect(True, held[0]["size"] > 0)
    expect_in("Produce(0)", tool(stage, "BrokerApiVersionsCommand"))
    tool(stage, "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    move = "reassign.ReassignPartitionsCommand"
    broker = described["brokers"][0]["broker"]
    plan = {"partitions": [{"topic": topic, "partition": 0, "replicas": [broker]}], "version": 1}
    path = ("--reassignment-json-file", str(stage.file("move.json", json.dumps(plan))))
    expect_in("Successfully started", tool(stage, move, "--execute", *path, "--throttle", "1000000"))
    expect_in("is completed", tool(stage, move, "--verify", *path))
    expect_in("No partition reassignments found", tool(stage, move, "--list"))


@script.story("delete-records")
def records_are_deleted_up_to_an_offset(stage: Stage) -> None:
    topic = stage.topic()
    stage.fill(topic, NUMBERS.split())
    plan = {"partitions": [{"topic": topic, "partition": 0, "offset": 6}], "version": 1}
    path = stage.file("delete.json", json.dumps(plan))
    expect_in("low_watermark: 6", tool(stage, "DeleteRecordsCommand", "--offset-json-file", str(path)))
    expect("6\n7\n8\n9\n", consume(stage, topic, 4, "--from-beginning"))


@script.story("commit", "describe-groups", "alter-offsets", "delete-offsets", "delete-group")
def a_group_is_shown_reset_and_deleted(stage: Stage) -> None:
    topic, group = stage.topic(), stage.unique("group")
    stage.fill(topic, NUMBERS.split())

    def groups(*arguments: str) -> str:
        return tool(stage, "consumer.group.ConsumerGroupCommand", *arguments)

    expect("0\n1\n2\n3\n", consume(stage, topic, 4, "--group", group, "--from-beginning"))
    expect("4\n5\n", consume(stage, topic, 2, "--group", group))
    expect_in(group, groups("--list"))
    described = groups("--describe", "--group", group)
    row = next(line.split() for line in described.splitlines() if topic in line)
    expect(["0", "6", "10", "4"], row[2:6])
    groups("--reset-offsets", "--to-offset", "2", "--topic", topic, "--group", group, "--execute")
    expect("2\n", consume(stage, topic, 1, "--group", group))
    expect_in("Successful", groups("--delete-offsets", "--topic", topic, "--group", group))
    expect_in("was successful", groups("--delete", "--group", group))
    expect(False, group in groups("--list"))


@script.story("commit", "describe-groups")
def a_console_consumer_of_the_new_protocol_resumes_and_its_group_is_shown(stage: Stage) -> None:
    topic, group = stage.topic(), stage.unique("group")
    stage.fill(topic, NUMBERS.split())
    new = ("--group", group, "--command-property", "group.protocol=consumer")
    expect("0\n1\n2\n3\n", consume(stage, topic, 4, "--from-beginning", *new))
    expect("4\n5\n", consume(stage, topic, 2, *new))
    listed = tool(stage, "consumer.group.ConsumerGroupCommand", "--list", "--type", "consumer")
    expect_in(group, listed)
    described = tool(stage, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    row = next(line.split() for line in described.splitlines() if topic in line)
    expect(["0", "6", "10", "4"], row[2:6])
