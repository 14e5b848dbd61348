"""The worker that is killed: copies one topic to another with the given delivery until it is stopped.

python pipe_worker.py BOOTSTRAP DELIVERY SOURCE TARGET
"""

import sys
import time

from headrace import Consumer, Message, Producer
from headrace.sdk import SdkError, exactly_once

GROUP = "pipe"


def copy(bootstrap: str, delivery: str, source: str, target: str) -> None:
    if delivery == "exactly-once":
        exactly_once(
            bootstrap,
            consume_from=source,
            transform=lambda message: message.value,
            produce_to=target,
            group=GROUP,
            transactional_id="pipe-0",
            batch_messages=100,
        )
        return
    settings = {"group_instance_id": "pipe-0", "auto_offset_reset": "earliest"}
    with (
        Consumer(bootstrap, source, group=GROUP, delivery=delivery, **settings) as consumer,  # type: ignore[arg-type]
        Producer(bootstrap, delivery=delivery) as producer,  # type: ignore[arg-type]
    ):
        while True:
            messages: list[Message] = consumer.poll(100, 0.5)
            for message in messages:
                producer.send(target, message.value, key=message.key)
            producer.flush(30)


def main() -> None:
    give_up_at = time.monotonic() + 600
    while time.monotonic() < give_up_at:
        try:
            copy(*sys.argv[1:5])
        except SdkError as error:  # the broker was killed: restart, as a supervisor would
            print(f"restarted after: {error}", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
