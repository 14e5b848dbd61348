"""What a member of a group is told to take and to give, so that a test can say that it kept something all the time."""

from confluent_kafka import Consumer, TopicPartition


class Moves:
    """Everything that a member is told to take or to give."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.given: list[int] = []

    def subscribe(self, consumer: Consumer, topic: str) -> None:
        consumer.subscribe([topic], on_assign=self._take, on_revoke=self._give)

    def _take(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.taken += [place.partition for place in places]

    def _give(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.given += [place.partition for place in places]

    def forget(self) -> None:
        self.taken.clear()
        self.given.clear()
