"""A report every hour on how many messages a topic got in it: `python examples/hourly_report.py orders`.

A recurring message is the clock: the broker delivers it every hour, and one of the workers that wait for it, all in one
group, writes the report. So there is one report an hour, however many workers run, and one that was missed because none
was running is written later. `--cron '* * * * *'` reports every minute. It needs a broker: `headrace serve`.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Consumer, Message, Producer, Schedules
from headrace.sdk import NotPending

CLOCK = "report-clock"


def main(
    topic: Annotated[str, typer.Argument(help="The topic to report on.")],
    cron: Annotated[str, typer.Option(help="When: minute, hour, day of month, month, day of week.")] = "0 * * * *",
    zone: Annotated[str, typer.Option("--tz", help="The time zone of --cron.")] = "UTC",
    count: Annotated[int, typer.Option(help="End after so many reports; 0: never.")] = 0,
    broker: Annotated[str, typer.Option(envvar="HEADRACE_BROKER")] = "127.0.0.1:9092",
) -> None:
    """Start the clock, and write a report whenever it strikes."""
    start_clock(broker, topic, cron, zone)
    with Consumer(broker, CLOCK, group=f"report-{topic}") as consumer:
        written = 0
        for strike in consumer:
            if strike.key_text != topic:
                continue
            end = due(strike)
            grown = messages_between(broker, topic, end - timedelta(hours=1), end)
            typer.echo(f"{end:%Y-%m-%d %H:%M} {topic}: {grown} messages in the hour before")
            consumer.commit()
            written += 1
            if written == count:
                return


def start_clock(broker: str, topic: str, cron: str, zone: str) -> None:
    """One recurring message for this topic, instead of that of an earlier start, whose expression may have differed."""
    clock = NewTopic(CLOCK, 1, -1, config={"headrace.delay.enable": "true"})
    admin = AdminClient({"bootstrap.servers": broker})
    try:
        admin.create_topics([clock])[CLOCK].result(10)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    with Schedules(broker) as schedules, suppress(NotPending):
        schedules.cancel_key(CLOCK, topic)
    with Producer(broker) as producer:
        producer.send(CLOCK, "report", key=topic, cron=cron, cron_tz=zone)


def due(strike: Message) -> datetime:
    """When the clock was to strike, which may be a moment before it did."""
    at_ms = int(strike.header("headrace.scheduled.for") or 0)
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def messages_between(broker: str, topic: str, start: datetime, end: datetime) -> int:
    """How many offsets the topic's partitions grew by; nothing is read for it."""
    reader = PlainConsumer({"bootstrap.servers": broker, "group.id": "hourly-report"})
    partitions = reader.list_topics(topic, timeout=10).topics[topic].partitions
    grown = 0
    for number in partitions:
        offsets = [offset_at(reader, TopicPartition(topic, number), moment) for moment in (start, end)]
        grown += offsets[1] - offsets[0]
    reader.close()
    return grown


def offset_at(reader: PlainConsumer, place: TopicPartition, moment: datetime) -> int:
    """The offset of the first message at that time or later; the end of the partition if there is none."""
    asked = TopicPartition(place.topic, place.partition, round(moment.timestamp() * 1000))
    found: int = reader.offsets_for_times([asked], timeout=10)[0].offset
    return found if found >= 0 else int(reader.get_watermark_offsets(place, timeout=10)[1])


if __name__ == "__main__":
    typer.run(main)
