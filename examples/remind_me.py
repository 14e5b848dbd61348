"""Remind me in ten minutes: `python examples/remind_me.py "drink some tea"`, or `--in 5s` for an impatient reader.

The reminder is a delayed message, so the broker keeps it, also if this program ends. This one waits for it, and cancels
it on Ctrl-C. It needs a broker that is running: `headrace serve`.
"""

import uuid
from datetime import timedelta
from typing import Annotated

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Consumer, Message, Producer, Schedules
from headrace.cli.moments import parse_span

TOPIC = "reminders"


def main(
    text: Annotated[str, typer.Argument(help="What to be reminded of.")] = "drink some tea",
    span: Annotated[str, typer.Option("--in", help="In which time, such as 5s, 10m or 1d12h.")] = "10m",
    broker: Annotated[str, typer.Option(envvar="HEADRACE_BROKER")] = "127.0.0.1:9092",
) -> None:
    """Send a reminder to the future and wait for it."""
    create_topic(broker)
    with Producer(broker) as producer:
        delay = timedelta(milliseconds=parse_span(span))
        receipt = producer.send_and_wait(TOPIC, text, delay=delay)
    try:
        typer.echo(f"reminder {receipt.partition}:{receipt.offset} comes in {span}; Ctrl-C cancels it")
        typer.echo(f"reminder: {wait_for(broker, receipt).text}")
    except KeyboardInterrupt:
        with Schedules(broker) as schedules:
            schedules.cancel(TOPIC, receipt.partition, receipt.offset)
        typer.echo("cancelled")


def create_topic(broker: str) -> None:
    """The topic must keep messages back; otherwise it would deliver a reminder at once."""
    topic = NewTopic(TOPIC, 1, -1, config={"headrace.delay.enable": "true"})
    admin = AdminClient({"bootstrap.servers": broker})
    try:
        admin.create_topics([topic])[TOPIC].result(10)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def wait_for(broker: str, receipt: Message) -> Message:
    """The message, once it is due. It has an offset of its own then; its id is in a header."""
    with Consumer(broker, TOPIC, group=f"remind-me-{uuid.uuid4()}") as consumer:
        for message in consumer:
            its_id = message.header("headrace.scheduled.id")
            if message.partition == receipt.partition and its_id == str(receipt.offset).encode():
                return message
    raise AssertionError("a consumer iterates without end")


if __name__ == "__main__":
    typer.run(main)
